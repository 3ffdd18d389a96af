"""Which settings are tried and taken, by trainings that only say what they take."""

from dataclasses import replace

import pytest

from darkroom.tools.tune.search import EXACT, KEYS, Result, label, search

NOW = {**EXACT, "threads": 1, "processes": 1}
EXACTLY = Result(updates=1000, batch=64, seconds=1.0, noise=0.5, now=NOW)


class Machine:
    """A machine on which each change multiplies the time of an update by a factor; others leave it as it is."""

    def __init__(self, factors=None, found=EXACTLY, **special):
        self.factors, self.found, self.special, self.asked = factors or {}, found, special, []

    def __call__(self, changes):
        found = self.found
        if changes is None:
            return found
        self.asked.append(dict(changes))
        for key, value in changes.items():
            found = replace(found, seconds=found.seconds * self.factors.get((key, value), 1.0))
            found = replace(found, **self.special.get(f"{key}_{value}", {}))
        return found


def tried(machine, cores=4):
    return list(search(machine, cores))


def verdicts(machine, **how):
    return {each.label: each.verdict for each in tried(machine, **how)}


def test_exact_settings_come_first_and_what_is_quicker_stays():
    machine = Machine({("threads", 2): 0.6, ("threads", 4): 0.7, ("precision", "bf16"): 0.5, ("compile", True): 0.99})
    found = tried(machine)
    assert machine.asked[0] == EXACT and found[0].label == "as it is"
    said = {each.label: each.verdict for each in found}
    assert said["threads: 2"] == said["precision: bf16"] == "taken"
    assert said["threads: 4"] == said["compile: true"] == "not faster"
    assert [each.changes for each in found if each.verdict == "taken"][-1] == {"threads": 2, "precision": "bf16"}
    assert machine.asked[-1] == {"threads": 2, "precision": "bf16", "compile": True}  # each beside what was taken


def test_what_is_quicker_by_chance_is_measured_again():
    def moody(changes):
        times = 0.5 if changes and "precision" in changes and changes != EXACT and not moody.asked else 1.0
        moody.asked += times == 0.5
        return replace(EXACTLY, seconds=times)

    moody.asked = 0
    assert verdicts(moody)["precision: bf16"] == "not faster when repeated" and moody.asked == 1


def test_a_repetition_that_fails_takes_nothing_and_spoils_nothing():
    def dies(changes):
        if changes and changes.get("precision") == "bf16":
            dies.asked += 1
            return Result(why="it was ended") if dies.asked == 2 else replace(EXACTLY, seconds=0.5)
        return replace(EXACTLY, seconds=0.7 if (changes or {}).get("compile") else 1.0)

    dies.asked = 0
    said = verdicts(dies)
    assert said["precision: bf16"] == "not faster" and said["compile: true"] == "taken"


def test_still_more_threads_are_not_tried_where_more_are_no_quicker():
    assert "threads: 4" not in verdicts(Machine({("threads", 2): 1.5}))


def test_several_processes_share_the_cores():
    found = replace(EXACTLY, now={**NOW, "processes": 2})
    assert "threads: 4" not in verdicts(Machine({("threads", 2): 0.6}, found))


def test_what_takes_long_at_first_must_pay_over_the_whole_training():
    def compiled(updates):
        machine = Machine({("compile", True): 0.5}, replace(EXACTLY, updates=updates), compile_True={"first": 60.0})
        return verdicts(machine)["compile: true"]

    assert compiled(1000) == "taken" and compiled(125) == "not faster"


def test_nothing_is_compiled_for_a_training_that_cannot_pay_for_it():
    machine = Machine({("compile", True): 0.1}, replace(EXACTLY, updates=100))
    assert verdicts(machine)["compile: true"].startswith("not tried: the training is shorter than 2 min")
    assert not any(each["compile"] for each in machine.asked if "compile" in each)


def test_only_the_keys_that_are_asked_for_are_tried():
    machine = Machine({("threads", 2): 0.6, ("precision", "bf16"): 0.5})
    assert [each.label for each in search(machine, 4, ["precision"])] == ["as it is", "precision: bf16"]


@pytest.mark.parametrize("departure", [0.11, float("nan")])
def test_what_departs_by_more_than_a_part_of_the_noise_is_refused(departure):
    machine = Machine({("precision", "bf16"): 0.1}, precision_bf16={"departure": departure})
    assert verdicts(machine)["precision: bf16"] == "departs"
    assert not any("precision" in each.changes for each in tried(machine) if each.verdict == "taken")
    machine = Machine({("precision", "bf16"): 0.1}, precision_bf16={"departure": 0.09})
    assert verdicts(machine)["precision: bf16"] == "taken"


def test_what_params_say_is_tried_beside_exact_settings_and_given_up_where_it_departs():
    now = {**NOW, "precision": "bf16", "compile": True}
    machine = Machine(found=replace(EXACTLY, now=now))
    found = tried(machine)
    assert [each.label for each in found[:2]] == ["exact", "as it is"] and found[1].verdict == ""
    assert {"precision: fp32", "compile: false"} <= {each.label for each in found}

    def departs(changes):
        kept = {**now, **(changes or {})}
        return replace(EXACTLY, now=now, departure=kept["precision"] == "bf16", seconds=0.5 if kept["compile"] else 1.0)

    found = tried(departs)
    assert found[1].verdict == "departs"
    assert found[2].changes == {"precision": "fp32", "compile": False, "threads": 2}
    last = [each.changes for each in found if each.verdict == "taken"][-1]
    assert last == {"precision": "fp32", "compile": True}  # compiling was not what departed


def test_what_a_network_has_no_use_for_is_not_tried():
    def labels(**has):
        return set(verdicts(Machine(found=replace(EXACTLY, **has))))

    assert "channels_last: true" not in labels()
    assert "channels_last: true" in labels(convolutions=True)


def test_a_gpu_has_no_threads_to_try_and_tf32():
    found = verdicts(Machine(found=replace(EXACTLY, gpu=True)))
    assert "tf32: true" in found and not any("thread" in each for each in found)


def test_what_cannot_run_ends_nothing_but_itself():
    def fails(changes):
        return Result(why="no compiler") if (changes or {}).get("compile") else EXACTLY

    found = tried(fails)
    assert {each.label: each.verdict for each in found}["compile: true"] == "cannot run: no compiler"
    assert found[-1].label.startswith("compile")
    assert [each.verdict for each in tried(lambda changes: Result(why="nothing"))] == ["cannot run: nothing"]


def test_each_key_has_a_label():
    assert len({label(key, value) for key in KEYS for value in (True, False)}) == 2 * len(KEYS)
