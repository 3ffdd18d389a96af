"""Which settings are tried and taken, by trainings that only say what they take."""

from dataclasses import replace

import pytest

from darkroom.tools.tune.search import EXACT, KEYS, Found, label, search

NOW = {**EXACT, "threads": 1, "micro_batch": None, "workers": 0, "activation_checkpointing": False}
EXACTLY = Found(updates=1000, batch=64, seconds=1.0, loss_noise=0.1, gradient_noise=0.5, cuts=True, now=NOW)


class Machine:
    """A machine on which each change multiplies the time of an update by a factor; others leave it as it is."""

    def __init__(self, factors=None, found=EXACTLY, **special):
        self.factors, self.found, self.special, self.asked = factors or {}, found, special, []

    def __call__(self, changes):
        self.asked.append(dict(changes))
        found = self.found
        for key, value in changes.items():
            found = replace(found, seconds=found.seconds * self.factors.get((key, value), 1.0))
            found = replace(found, **self.special.get(f"{key}_{value}", {}))
        return found


def tried(machine, cores=4, gpu=False):
    return list(search(machine, cores, gpu))


def test_exact_settings_come_first_and_what_is_quicker_stays():
    machine = Machine({("threads", 2): 0.6, ("threads", 4): 0.7, ("precision", "bf16"): 0.5, ("workers", 1): 0.99})
    found = tried(machine)
    assert machine.asked[0] == EXACT and found[0].label == "as it is"
    verdicts = {each.label: each.verdict for each in found}
    assert verdicts["2 threads"] == verdicts["bf16"] == "taken"
    assert verdicts["4 threads"] == verdicts["workers 1"] == "no quicker"
    assert [each.changes for each in found if each.verdict == "taken"][-1] == {"threads": 2, "precision": "bf16"}
    assert machine.asked[-1] == {"threads": 2, "precision": "bf16", "workers": 2}  # each beside what was taken


def test_still_more_threads_are_not_tried_where_more_are_no_quicker():
    machine = Machine({("threads", 2): 1.5})
    assert "4 threads" not in {each.label for each in tried(machine)}


def test_what_takes_long_at_first_must_pay_over_the_whole_training():
    def compiled(updates):
        machine = Machine({("compile", True): 0.5}, replace(EXACTLY, updates=updates), compile_True={"first": 60.0})
        return {each.label: each.verdict for each in tried(machine)}["compile"]

    assert compiled(1000) == "taken" and compiled(100) == "no quicker"


@pytest.mark.parametrize("what", [{"gradient": 0.06}, {"loss": 0.011}])
def test_what_departs_by_more_than_a_part_of_the_noise_is_refused(what):
    machine = Machine({("precision", "bf16"): 0.1}, precision_bf16=what)
    found = tried(machine)
    assert {each.label: each.verdict for each in found}["bf16"] == "departs"
    assert not any("precision" in each.changes for each in found if each.verdict == "taken")
    almost = {name: value * 0.8 for name, value in what.items()}
    machine = Machine({("precision", "bf16"): 0.1}, precision_bf16=almost)
    assert {each.label: each.verdict for each in tried(machine)}["bf16"] == "taken"


def test_what_params_say_is_tried_beside_exact_settings_and_given_up_where_it_departs():
    now = {**NOW, "precision": "bf16", "compile": True}
    machine = Machine(found=replace(EXACTLY, now=now))
    found = tried(machine)
    assert [each.label for each in found[:2]] == ["exact", "as it is"] and found[1].verdict == ""
    assert {"fp32", "no compile"} <= {each.label for each in found}

    def departs(changes):
        kept = {**now, **changes}
        return replace(EXACTLY, now=now, gradient=0.3 * (kept["precision"] == "bf16"))

    found = tried(departs)
    assert found[1].verdict == "departs"
    assert found[2].changes == {"precision": "fp32", "compile": False, "threads": 2}


def test_what_a_network_has_no_use_for_is_not_tried():
    def labels(**has):
        return {each.label for each in tried(Machine(found=replace(EXACTLY, **has)))}

    assert not labels() & {"channels last", "activation checkpointing"}
    assert {"channels last", "activation checkpointing"} <= labels(convolutions=True, checkpoints=True)
    assert {"micro batch 32", "micro batch 16"} <= labels()
    assert not any("micro" in each for each in labels(cuts=False) | labels(batch=8))


def test_a_gpu_has_no_threads_to_try_and_tf32():
    found = {each.label for each in tried(Machine(), gpu=True)}
    assert "tf32" in found and not any("thread" in each for each in found)


def test_what_cannot_run_ends_nothing_but_itself():
    def fails(changes):
        return Found(why="no compiler") if changes.get("compile") else EXACTLY

    found = tried(fails)
    assert {each.label: each.verdict for each in found}["compile"] == "cannot run: no compiler"
    assert found[-1].label.startswith("workers")
    assert [each.verdict for each in tried(lambda changes: Found(why="nothing"))] == ["cannot run: nothing"]


def test_each_key_has_a_label():
    assert len({label(key, value) for key in KEYS for value in (True, False)}) == 2 * len(KEYS)
