"""What goes wrong in a process that reads ahead is said as if this process had read."""

import errno

import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.training.loader import training_batches
from training.toy import Numbers


class Broken(Numbers):
    def __init__(self, error):
        self.error = error

    def __getitems__(self, rows, positions=None):
        raise self.error


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sentence_stays_a_sentence(workers):
    with pytest.raises(DarkroomError) as caught:
        list(training_batches(Broken(DarkroomError("the shard is gone.")), 0, 0, 8, 4, workers, torch.device("cpu")))
    assert str(caught.value) == "the shard is gone."


@pytest.mark.parametrize("workers", [0, 1])
def test_a_full_disk_stays_one(workers):
    full = OSError(errno.ENOSPC, "No space left on device", "/cache")
    with pytest.raises(OSError, match="No space left") as caught:
        list(training_batches(Broken(full), 0, 0, 8, 4, workers, torch.device("cpu")))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/cache")
