"""Bad input: one clear sentence, an exit code, and nothing lost."""

import ctypes
import os

from dag.sandbox import DARKROOM, ENGINES, SOURCE, Sandbox

CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24


def test_bad_parameters_stop_both_engines_before_any_work(toy: Sandbox, toy_made: Sandbox) -> None:
    toy.replace("params.yaml", "images: 64", "imagse: 64")
    with toy.bodies() as ran:
        for command in ((*DARKROOM, "check"), ENGINES["snakemake"]):
            assert "unknown key `train_extractor.training.imagse`; did you mean `images`?" in toy.fails(*command)
        assert toy.hashes() == toy_made.hashes()
        toy.fails(*ENGINES["dvc"])
    assert ran == []
    toy.run("git", "checkout", "params.yaml")
    toy.dvc("checkout")
    assert toy.hashes() == toy_made.hashes()


def test_code_of_another_checkout_is_refused(toy: Sandbox) -> None:
    printed = toy.fails("env", f"PYTHONPATH={SOURCE / 'src'}", "python", "-m", "darkroom", "report")
    assert "is not the code of this folder" in printed


def test_a_stage_survives_a_closed_terminal(toy: Sandbox) -> None:
    """The reader of its output is gone after one line; the stage runs to its end all the same."""
    command = "PYTHONPATH=src python -m darkroom train_extractor | head -n 1"
    assert toy.ran("bash", "-o", "pipefail", "-c", command) == ["train_extractor"]
    assert "done in" in toy.log("train_extractor")


def test_a_folder_that_is_not_writable_is_named_before_the_work(fresh: Sandbox) -> None:
    (fresh.root / "models").chmod(0o555)

    def without_override() -> None:  # root may write everywhere, unless it gives that up
        if os.geteuid() == 0:
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)

    done = fresh.attempt(*DARKROOM, "train_generator", preexec_fn=without_override)
    assert done.returncode == 1 and "cannot write models/generator" in done.stdout and "images/s" not in done.stdout
