"""What `darkroom init` finds of this machine."""

import os

import pytest
import torch

from darkroom.tools import cores as machine
from darkroom.tools.cores import this_machine


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Return the percentages of two cores that other processes use."""
    percent = [3.0, 8.0]
    monkeypatch.setattr(machine.psutil, "cpu_percent", lambda seconds, percpu: percent)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    return percent


@pytest.mark.parametrize(("percent", "cores", "busy"), [([3, 8], 2, 0), ([95, 8], 1, 1), ([100, 100, 100], 1, 1)])
def test_cores_that_others_use_do_not_count_but_one_is_left(monkeypatch, used, percent, cores, busy):
    monkeypatch.setattr(machine, "_seconds", lambda bf16: 1.0)
    used[:] = percent
    found = this_machine("cpu")
    assert (found.cores, found.busy) == (cores, busy)


@pytest.mark.parametrize(("seconds", "bf16"), [((0.2, 0.1), True), ((0.1, 0.1), False), ((0.1, 1.5), False)])
def test_a_cpu_takes_bf16_where_convolutions_are_quicker_in_it(monkeypatch, seconds, bf16):
    full, half = seconds
    monkeypatch.setattr(machine, "_seconds", lambda bf16: half if bf16 else full)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (this_machine("auto").gpu, this_machine("auto").bf16) == (False, bf16)


@pytest.mark.parametrize(("device", "gpu"), [("auto", True), ("cuda:1", True), ("cpu", False)])
def test_a_gpu_counts_where_it_is_to_be_used(monkeypatch, device, gpu):
    monkeypatch.setattr(machine, "_seconds", lambda bf16: 1.0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: not emulated)
    assert (this_machine(device).gpu, this_machine(device).bf16) == (gpu, gpu)


@pytest.mark.parametrize("bf16", [False, True])
def test_it_is_timed_on_one_thread_and_the_number_of_threads_stays(monkeypatch, bf16):
    threads, forward = [], torch.nn.Conv2d.forward
    monkeypatch.setattr(
        torch.nn.Conv2d, "forward", lambda *given: threads.append(torch.get_num_threads()) or forward(*given)
    )
    monkeypatch.setattr(machine, "_BATCH", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert machine._seconds(bf16) > 0 and set(threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
