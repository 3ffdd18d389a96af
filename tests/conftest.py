"""What all tests share."""

import os
import signal
import sys

import pytest
from hypothesis import settings

# Programs that tests start buffer what they print, as on a machine on which nobody says otherwise.
os.environ.pop("PYTHONUNBUFFERED", None)

# And keep what they compiled, as pytest keeps test modules: half of the time of collecting is compiling them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests run side by side: a thread that waits must leave its core to another, and not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# And compute with one thread, where a test does not say otherwise: two share the cores of the machine as it is.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs that tests start react to Ctrl-C, even if pytest runs in the background, where shells ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run and machine, and no deadline: a busy machine is not a fault.
settings.register_profile("darkroom", derandomize=True, deadline=None)
settings.load_profile("darkroom")


@pytest.fixture(scope="session", autouse=True)
def one_reading_of_the_source():
    """Parse the modules of this checkout once per process: every stage that runs here fingerprints its code, in 2 s."""
    from darkroom.dag.fingerprint.following import Sources
    from darkroom.dag.fingerprint.stages import SOURCE
    from darkroom.training import state

    shared = Sources(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "Sources", lambda folder: shared if folder == SOURCE else Sources(folder))
        yield


@pytest.fixture
def one_thread():
    """Of several, each multiplies some rows of a batch, and a row's place may change its last bit."""
    import torch  # here, so that tests without it stay quick

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
