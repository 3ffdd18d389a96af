"""Did a change help, and is the difference noise?"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from darkroom.cli import main
from darkroom.dag.records import Outdated
from darkroom.errors import DarkroomError
from darkroom.metrics.score import wilson
from darkroom.tools.compare.revisions import Results, commit_of
from darkroom.tools.compare.verdicts import compare, differing_protocol, standard_error

PROTOCOL = {"extractors": {"in_domain": {"sha256": "a"}}, "n_fake": 100, "classes": "frequency"}
CARD = {"protocol": PROTOCOL, "treatment": {"sampler": {"guidance": 1.0}, "seed": 1}}


def results(scores, card=CARD, name="x"):
    return Results(name, {"dit": scores}, {"dit": card})


def verdict(old, new, card=CARD):
    return {f"{row.file}.{row.name}": row.verdict for row in compare(results(old), results(new, card))}


def test_differences_are_judged_by_their_error():
    """2 standard errors of sqrt(0.03² + 0.04²) = 0.05 are 0.1."""
    old = {"fd": 1.0, "fd_se": 0.03}
    assert verdict(old, {"fd": 1.09, "fd_se": 0.04}) == {"dit.fd": "within noise"}
    assert verdict(old, {"fd": 1.11, "fd_se": 0.04}) == {"dit.fd": "worse by 2.2 se"}
    assert verdict(old, {"fd": 0.8, "fd_se": 0.04}) == {"dit.fd": "better by 4.0 se"}
    assert verdict(old, old) == {"dit.fd": "equal"}


def test_too_few_images_give_no_verdict():
    old, few = {"fd": 1.0, "fd_se": 0.03, "n": 100}, {"fd": 9.0, "n": 4}
    assert verdict(old, few) == verdict(few, old) == {"dit.fd": "too few images (4)"}


def test_accuracy_and_psnr_are_better_when_higher():
    psnr = {"psnr": 30.0, "psnr_se": 0.1}, {"psnr": 31.0, "psnr_se": 0.1}
    assert verdict(*psnr) == {"dit.psnr": "better, error unknown"}  # the same images in both: not independent
    low, high = {"label_accuracy": 0.90, "n": 1000}, {"label_accuracy": 0.95, "n": 1000}
    assert verdict(low, high)["dit.label_accuracy"].startswith("better by 4.")
    assert verdict(high, low)["dit.label_accuracy"].startswith("worse by 4.")


def test_a_fraction_of_all_images_has_an_error_too():
    """124 of 128 images and 128 of 128: Fisher's exact test gives p = 0.12."""
    all_right, most = {"label_accuracy": 1.0, "n": 128}, {"label_accuracy": 124 / 128, "n": 128}
    assert verdict(all_right, most)["dit.label_accuracy"] == "within noise"
    assert verdict(all_right, {"label_accuracy": 110 / 128, "n": 128})["dit.label_accuracy"].startswith("worse by")


def test_a_codebook_is_better_when_more_of_it_is_used_and_its_codes_cost_less():
    better = {"codebook_usage": 0.9, "codebook_perplexity_scored": 9.0, "dead_codes": 1.0, "ms_ssim": 0.9, "lpips": 0.1}
    worse = {"codebook_usage": 0.8, "codebook_perplexity_scored": 8.0, "dead_codes": 2.0, "ms_ssim": 0.8, "lpips": 0.2}
    assert set(verdict(worse, better).values()) == {"better, error unknown"}
    assert set(verdict(better, worse).values()) == {"worse, error unknown"}
    errors = {"lpips_se": 0.01, "ms_ssim_se": 0.01}  # of the same images in both: not independent
    assert set(verdict(worse | errors, better | errors).values()) == {"better, error unknown"}


def test_scores_stand_in_one_table_with_their_errors(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").touch()
    Path("metrics").mkdir()
    few = {"fd": 3.0, "n": 4}
    files = {"dit": {"fd": 1.25, "fd_se": 0.5, "n": 100}, "few": few, "text": {"fd": 2.0, "psnr": 9.5}, "empty": {}}
    for name, content in files.items():
        Path(f"metrics/{name}.json").write_text(json.dumps(content))
    assert main(["scores", "--all"]) == 0
    cells = [line.split() for line in capsys.readouterr().out.splitlines()[:4]]
    fd = ["fd", "1.25", "±", "0.5", "3", "too", "few", "images", "(4)", "2"]
    assert cells == [["score", "dit", "few", "text"], fd, ["n", "100", "4"], ["psnr", "9.5"]]
    assert main(["scores", "--all", "--md"]) == 0
    assert "| fd      | 1.25 ± 0.5 |" in capsys.readouterr().out


def test_five_scores_stand_first_beside_real_images_with_what_limits_them(repository, capsys):
    scores = {"fd": 9.0, "fd_debiased": 8.0, "fd_se": 0.25, "n": 100, "label_accuracy": 0.5, "diversity": 1.5}
    real = {
        "held_out": {"in_domain": {"fd_debiased": 1.0, "fd_se": 0.5}},
        "label_accuracy": {"held_out": 0.75, "held_out_se": 0.125},
        "diversity": {"diversity": 2.5, "diversity_se": 0.25},
        "copies": {"copies_moved": 0.0},
    }
    (repository / "metrics/generator.json").write_text(json.dumps(scores | {"copies_moved": 0.0, "kid": 0.125}))
    (repository / "metrics/tokenizer.json").write_text(json.dumps({"rfd": 3.5, "psnr": 20.0}))
    (repository / "cards/generator.json").write_text(json.dumps({**CARD, "baselines": real}))
    assert main(["scores", "--md"]) == 0
    printed = capsys.readouterr().out
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("| ")]
    assert table[0] == ["score", "generator", "real images"]
    assert table[1] == ["distance from real images (fd_debiased) ↓", "8 ± 0.25", "1 ± 0.5"]
    assert table[2][1:] == ["3.5", "0"] and table[3] == [
        "label accuracy (label_accuracy) ↑",
        "0.5 ± 0.049",
        "0.75 ± 0.12",
    ]
    assert [row[1:] for row in table[4:]] == [["1.5", "2.5 ± 0.25"], ["0", "0"]]
    assert [row[0][-1] for row in table[4:]] == [")", "↓"]  # diversity has no better direction
    assert "What limits the result. The tokenizer: `rfd`, 3.500, is 50% of" in printed and "0.125" not in printed


def test_of_captioned_scenes_the_match_with_the_caption_stands_first(repository, capsys):
    scores = {
        "fd": 9.0,
        "fd_debiased": 8.0,
        "n": 100,
        "label_accuracy": 0.5,
        "as_described": 0.75,
        "as_described_se": 0.25,
    }
    real = {"scene_reader": {"originals": {"as_described": 1.0}}}
    (repository / "metrics/generator.json").write_text(json.dumps(scores))
    (repository / "cards/generator.json").write_text(json.dumps({**CARD, "baselines": real}))
    assert main(["scores", "--md"]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "as_described" in line)
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["0.75 ± 0.25", "1"] and "label_accuracy" not in printed


def test_notes_of_cards_stand_below_the_scores(repository, capsys):
    """As that label accuracy says little."""
    (repository / "cards/generator.json").write_text(json.dumps({**CARD, "notes": ["label accuracy says little"]}))
    assert main(["scores"]) == 0
    assert "generator: label accuracy says little." in capsys.readouterr().out


def test_the_error_of_a_fraction_is_wilsons_and_of_a_debiased_score_its_distances():
    low, high = wilson(0.5, 100)
    assert standard_error("label_accuracy", {"label_accuracy": 0.5, "n": 100}) == pytest.approx((high - low) / 3.92)
    assert standard_error("fd_debiased", {"fd_debiased": 1.0, "fd_se": 0.2}) == 0.2


def test_another_clip_is_studied_and_its_counts_are_no_scores():
    old, new = ({"image_to_text_r1": share, "image_to_text_r1_se": 0.01, "images": 9.0} for share in (0.5, 0.6))
    cards = [{"protocol": {"images": 9}, "treatment": {"clip": name}} for name in ("a", "b")]
    rows = compare(Results("x", {"clip": old}, {"clip": cards[0]}), Results("y", {"clip": new}, {"clip": cards[1]}))
    assert [(row.name, row.verdict) for row in rows] == [("image_to_text_r1", "better, error unknown")]
    judged = [Results("x", {"dit": {"fd": 1.0}}, {"dit": {"protocol": {"clip": name}}}) for name in ("a", "b")]
    assert [row.verdict for row in compare(*judged)] == ["not comparable: clip"]


def told(scores, **card):
    return Results("x", {"decoder": scores}, {"decoder": {**CARD, "protocol": {**PROTOCOL, **card}}})


def test_what_was_told_is_better_when_more_of_it_is_seen():
    worse = {"clip_image": 0.5, "colour_and_form": 0.5, "as_described": 0.25, "psnr": 10.0, "fd": 2.0, "fd_se": 0.1}
    better = {"clip_image": 0.6, "colour_and_form": 0.6, "as_described": 0.5, "psnr": 11.0, "fd": 1.0, "fd_se": 0.1}
    errors = {"colour_and_form_se": 0.01, "clip_image_se": 0.01}  # of the same test images: not independent
    for old, new, word in ((worse, better, "better"), (better, worse, "worse")):
        found = {row.name: row.verdict for row in compare(told(old | errors), told(new | errors))}
        assert found.pop("fd") == f"{word} by 7.1 se"
        assert set(found) == {"clip_image", "colour_and_form", "as_described", "psnr"}
        assert set(found.values()) == {f"{word}, error unknown"}


def test_a_judge_counts_for_the_scores_that_are_its_own():
    """And what real images get is no score."""
    scores = {"clip_text": 0.5, "colour": 0.5, "lpips": 0.5, "fd": 1.0, "clip_text_real": 0.75}
    old = told(scores, clip="a", scene_reader={"id": "a"}, lpips="a")
    new = told(scores, clip="b", scene_reader={"id": "b"}, lpips="b")
    assert {row.name: row.verdict for row in compare(old, new)} == {
        "clip_text": "not comparable: clip",
        "colour": "not comparable: scene_reader.id",
        "lpips": "not comparable: lpips",
        "fd": "equal",
    }
    fewer = compare(told(scores), told(scores, n_fake=50))
    assert {row.verdict for row in fewer} == {"not comparable: n_fake"}


@pytest.mark.parametrize("file", ["generator", "tokenizer_samples"])
def test_pairs_and_lpips_of_a_diversity_are_its_own_and_neither_way_is_better(file):
    scores = {"diversity": 0.5, "diversity_se": 0.01, "lpips_diversity": 0.25, "fd": 1.0}
    cards = [{"protocol": {"n_fake": 100, "diversity": {"pairs": 40}}}, {"protocol": {"n_fake": 100, "lpips": "b"}}]
    old, new = (Results(name, {file: scores}, {file: card}) for name, card in zip("xy", cards, strict=True))
    assert {row.name: row.verdict for row in compare(old, new)} == {"fd": "equal"}


def test_where_nothing_was_made_there_is_nothing_to_compare():
    assert compare(told({"fd": 1.0}), Results("y", {"decoder": {}}, {"decoder": {}})) == []


def test_another_judge_or_count_is_not_comparable_and_another_sampler_is():
    other_judge = {"protocol": {**PROTOCOL, "extractors": {"in_domain": {"sha256": "b"}}}}
    assert verdict({"fd": 1.0}, {"fd": 2.0}, other_judge) == {"dit.fd": "not comparable: extractors.in_domain.sha256"}
    assert differing_protocol(CARD, {"protocol": {**PROTOCOL, "n_fake": 50}}) == ["n_fake"]
    assert differing_protocol(CARD, {**CARD, "treatment": {"sampler": {"guidance": 2.0}}, "notes": ["x"]}) == []


@pytest.mark.parametrize(
    ("classes", "says"), [("balanced", "frequency and balanced"), ({"b": 2, "a": 1}, "frequency and 1 of a, 2 of b")]
)
def test_two_distributions_of_classes_do_not_compare(classes, says):
    other = {"protocol": {**PROTOCOL, "classes": classes}}
    assert verdict({"fd": 1.0}, {"fd": 2.0}, other) == {"dit.fd": f"not comparable: classes ({says})"}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with results in a commit, in an experiment and in the working tree."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").touch()
    (tmp_path / "models/generator").mkdir(parents=True)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "x")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "x@example.org")
    git("init", "-q", "-b", "main")
    for folder in ("metrics", "cards"):
        (tmp_path / folder).mkdir()
    shutil.copy(Path(__file__).parents[3] / ".gitignore", tmp_path)
    for fd, ref in ((1.0, None), (0.5, "refs/exps/ab/cdef/brave-name"), (2.0, None)):
        (tmp_path / "metrics/generator.json").write_text(json.dumps({"fd": fd, "fd_se": 0.01, "n": 10}))
        (tmp_path / "cards/generator.json").write_text(json.dumps(CARD))
        if fd == 2.0:
            break
        git("add", ".")
        git("commit", "-qm", str(fd))
        if ref:
            git("update-ref", ref, "HEAD")
            git("reset", "-q", "--hard", "HEAD~1")
    return tmp_path


def git(*arguments):
    subprocess.run(["git", *arguments], check=True)


def test_the_command_compares_commits_experiments_and_the_working_tree(repository, capsys):
    assert main(["compare"]) == 0
    printed = capsys.readouterr().out
    assert "HEAD" in printed and "workspace" in printed and "worse by 70.7 se" in printed
    assert main(["compare", "main", "brave-name", "--md"]) == 0
    assert "| generator.fd | 1 ± 0.01 | 0.5 ± 0.01   | -0.5 ± 0.014 | better by 35.4 se |" in capsys.readouterr().out


def test_scores_that_are_equal_are_counted_and_shown_when_asked_for(repository, capsys):
    assert main(["compare", "main", "main"]) == 0
    printed = capsys.readouterr().out
    assert "generator.fd" not in printed and "equal in both: use `--all` to show them." in printed
    assert main(["compare", "main", "main", "--all"]) == 0
    assert "generator.fd" in (printed := capsys.readouterr().out) and "equal in both" not in printed


def test_scores_that_do_not_compare_are_counted_and_shown_when_asked_for(repository, capsys):
    protocol = {**PROTOCOL, "n_fake": 5, **dict.fromkeys(("a", "b", "c", "d"), 1)}
    (repository / "cards/generator.json").write_text(json.dumps({"protocol": protocol}))
    assert main(["compare"]) == 0
    printed = capsys.readouterr().out
    assert "generator: 1 score does not compare, because these differ: a, b, c, d and 1 more." in printed
    assert "generator.fd" not in printed and "training seeds" not in printed
    assert main(["compare", "--all"]) == 0
    printed = capsys.readouterr().out
    assert "not comparable: a, b, c, d, n_fake" in printed and "not compare," not in printed
    git("commit", "-qam", "other data")
    scores = {"fd": 2.0, "fd_se": 0.01, "clip_text": 0.5, "n": 10}
    for clip, commit in (("a", True), ("b", False)):
        (repository / "metrics/generator.json").write_text(json.dumps(scores))
        (repository / "cards/generator.json").write_text(json.dumps({"protocol": {**PROTOCOL, "clip": clip}}))
        if commit:
            git("commit", "-qam", "with CLIP")
    assert main(["compare"]) == 0
    assert "1 score does not compare, because these differ: clip." in capsys.readouterr().out


def test_scores_that_one_of_two_has_alone_are_named(repository, capsys):
    """As those of the generator, once `train_generator.kind` is none."""
    for folder in ("metrics", "cards"):
        (repository / folder / "generator.json").write_text("{}")
    assert main(["compare"]) == 0
    assert "only HEAD has scores of: generator." in capsys.readouterr().out.splitlines()


def test_unknown_revisions_and_missing_metrics_are_named(repository, capsys):
    assert main(["compare", "nowhere"]) == 1
    assert "`nowhere` is not a commit, branch, tag or experiment" in capsys.readouterr().err
    git("rm", "-rqf", "--cached", ".")
    git("commit", "-qm", "empty", "--allow-empty")
    assert main(["compare", "HEAD"]) == 1
    assert "HEAD has no metrics/*.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compare", "scores"])
def test_where_nothing_was_trained_it_is_said_what_to_run(command, repository, capsys):
    shutil.rmtree("models")
    assert main([command]) == 0
    assert capsys.readouterr().out.strip().endswith("Run `snakemake --cores all` first.")


def test_two_experiments_of_one_name_are_no_name(repository):
    git("update-ref", "refs/exps/xy/z/brave-name", "HEAD")
    with pytest.raises(DarkroomError, match="is not a commit"):
        commit_of("brave-name")


def test_a_missing_card_is_no_permission_to_compare():
    rows = compare(results({"fd": 1.0}), Results("y", {"dit": {"fd": 2.0}}, {}))
    assert rows[0].verdict.startswith("not comparable: a card is missing")


def test_scores_older_than_the_working_tree_are_said_to_be(repository, capsys, monkeypatch):
    monkeypatch.setattr("darkroom.tools.compare.table.stale", lambda: True)
    main(["compare"])
    assert "The working tree is out of date" in capsys.readouterr().out
    main(["compare", "main", "brave-name"])
    assert "out of date" not in capsys.readouterr().out


def test_scores_of_other_data_are_left_out_and_those_of_other_parameters_marked(repository, capsys, monkeypatch):
    for name in ("clip", "text"):
        (repository / f"metrics/{name}.json").write_text('{"fd": 7.25}')
    states = {f"metrics/{name}.json": Outdated(f"score_{name}", name == "text") for name in ("generator", "text")}
    monkeypatch.setattr("darkroom.tools.compare.revisions.outdated", lambda: states)
    assert main(["scores", "--all"]) == 0
    printed = capsys.readouterr().out
    assert printed.split("\n")[0].split() == ["score", "clip", "generator", "(stale)"]
    assert (
        "metrics/text.json belongs to other data than in params.yaml; score_text replaces it when it ends." in printed
    )
    assert main(["compare"]) == 0
    printed = capsys.readouterr().out
    assert "metrics/generator.json belongs to other parameters (stale) than in params.yaml" in printed
    assert main(["scores", "HEAD"]) == 0 and "than params.yaml" not in capsys.readouterr().out
    (repository / "metrics/clip.json").unlink()
    states["metrics/generator.json"] = states["metrics/text.json"]
    assert main(["scores"]) == 1
    assert "all of metrics/ belongs to other data than params.yaml" in capsys.readouterr().err
