"""Same weights and same noise in, same numbers out, as the packages that the kinds come from.

See docs/results/tokenizers.md. Each comparison runs in the environment of the originals, which is made from PyPI if
there is none. Where that fails, the test is skipped, or fails if DARKROOM_ORIGINALS_REQUIRED is set.
"""

import json
import os
import subprocess

import pytest

from originals.environment import ROOT, MissingError, make

# The largest difference, relative to the largest number of a tensor. In float64 only formulas can differ: MUSE adds
# 1e-10 to a probability, and x-transformers computes a softmax in float32.
CLOSE = {"float64": 1e-6, "float32": 1e-5}
# By the end of what is compared, in which dtypes: what magnifies rounding. The gradient of an entropy at inverse
# temperature 100, in float32, that of the encoder: 3e-5 was measured. The gradient of the decoder's variance, that of
# the noise schedule's tables, which both sides keep in float32: 2e-5.
STEEP = {("lfq", ": gradients"): ("float32",), ("", ": gradient of the variance"): ("float32", "float64")}
CLOSE_IF_STEEP = 5e-5

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", ["dvae", "vqgan", "vq_ar", "taming", "decoder"])
def test_it_gives_the_numbers_of_the_original(name, dtype):
    try:
        python = make([name])
    except MissingError as missing:
        refuse = pytest.fail if os.environ.get("DARKROOM_ORIGINALS_REQUIRED") else pytest.skip
        refuse(f"the original of {name} cannot be had: {missing}")
    done = subprocess.run(
        [python, "-W", "ignore", ROOT / "tests/originals/compare.py", name, dtype], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found
    steep = {
        what
        for what in found
        for (first, last), dtypes in STEEP.items()
        if dtype in dtypes and what.startswith(first) and what.endswith(last)
    }
    apart = {what: far for what, far in found.items() if not far <= (CLOSE_IF_STEEP if what in steep else CLOSE[dtype])}
    assert not apart
