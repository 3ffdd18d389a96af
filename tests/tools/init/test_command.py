"""`darkroom init` as a whole, on a machine that need not be measured."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from PIL import Image

from darkroom.check.check import check
from darkroom.cli import main
from darkroom.models.evaluators.settings import ExtractorTraining
from darkroom.params.stage import read_yaml
from darkroom.tools import preset
from darkroom.tools.cores import Machine
from darkroom.tools.init import command, facts, measuring, writing
from darkroom.tools.init.facts import look
from darkroom.tools.init.subject import entry, opened
from darkroom.tools.init.writing import LAST
from darkroom.tools.plan.plan import Planned
from darkroom.tools.plan.table import StagePlan
from report.making import curve
from stages.test_every_source import run as run_stage
from tools.init.conftest import classes


def values() -> dict:
    return read_yaml(Path("params.yaml"))


def captioned(root: Path) -> Path:
    for number, path in enumerate(sorted(root.rglob("*.png"))):
        path.with_suffix(".txt").write_text(f"the number {number}")
    return root


def cases(pictures) -> dict[str, list[str]]:
    flat = [f"{number}.png" for number in range(120)]
    return {
        "classes": [str(pictures("classes", classes("cat", "dog", each=60)))],
        "captions": [str(captioned(pictures("captions", flat)))],
        "grey": [str(pictures("grey", flat, mode="L")), "--size", "64"],
        "transparent": [str(pictures("Bilder und Größen 图/ähm", flat, mode="RGBA"))],
        "tokenizer": [str(pictures("tokenizer", flat)), "--generator", "none"],
        "digits": ["digits", "--text"],
    }


def test_every_kind_of_folder_gives_valid_settings_within_the_time(clone, quick, pictures, capsys):
    for name, arguments in cases(pictures).items():
        assert main(["init", *arguments, "--minutes", "10"]) == 0, name
        said = capsys.readouterr().out
        assert "fit each other" in check(), name
        found = values()
        assert f"darkroom init {arguments[0]}" in Path("params.yaml").read_text().replace("'", ""), name
        assert found["train_clip"]["source"] == "none", name
        captions = "data/shards" if name in ("captions", "digits") else "data/none"
        assert found["train_generator"]["captions"] == captions, name
        channels = {"grey": "L", "digits": "L", "transparent": "RGBA"}.get(name, "RGB")
        assert found["ingest"]["channels"] == channels, name
        line = "100.0% have transparent pixels: stored with alpha (`ingest.channels: RGBA`).\n"
        assert (line in said) == (name == "transparent"), name
        assert found["train_generator"]["kind"] == ("none" if name == "tokenizer" else "dit"), name
        assert ("default_label" in found["ingest"]) == (name not in ("classes", "digits")), name
        assert found["ingest"]["image_size"] == (64 if name == "grey" else 32), name
        assert f"params.yaml is written; the old version is {LAST}" in said, name
        assert "Shorter trainings would give no useful images" not in said, name
        # Without CLIP no U-Net is trained for nothing.
        assert all(unet["embeddings"] != "data/none" for unet in found["train_decoder"]["unets"].values()), name


def test_a_tokenizer_that_limited_the_last_run_of_the_same_images_gets_more_of_the_time(clone, quick, pictures, capsys):
    names = ("train_tokenizer", "train_generator")
    lengths = []
    scores, other = {"fd": 9.0, "fd_debiased": 9.0, "fd_se": 0.1, "n": 100}, pictures("other", classes("cat", "dog"))
    for root in (pictures("pictures", classes("cat", "dog")), pictures("pictures", []), other):
        assert main(["init", str(root), "--minutes", "10"]) == 0
        lengths.append([values()[name]["training"]["images"] for name in names])
        for folder, name, content in (("metrics", "generator", scores), ("metrics", "tokenizer", {"rfd": 8.0})):
            Path(folder).mkdir(exist_ok=True)
            Path(folder, f"{name}.json").write_text(json.dumps(content))
        for name, images in zip(("tokenizer", "generator"), lengths[0], strict=True):
            curve(Path("curves", name), "train/loss", [(images, 1.0)])
        assert ("The tokenizer limited the last run" in capsys.readouterr().out) == (len(lengths) == 2)
    first, second, of_others = (tokenizer / generator for tokenizer, generator in lengths)
    assert 1.6 * first < second and of_others == first


@pytest.mark.parametrize(
    ("options", "said", "not_said"),
    [
        (["--text"], 'darkroom sample --text "…"', "--labels"),
        (["--no-text"], "darkroom sample --labels 'my cat,dog'", "--text"),
        (["--generator", "none"], "look first at the reconstructions next to their originals", "samples"),
    ],
)
def test_it_ends_with_what_to_look_at_and_to_draw(clone, quick, pictures, capsys, options, said, not_said):
    root = captioned(pictures("pictures", classes("my cat", each=30) + classes("dog")))
    assert main(["init", str(root), "--minutes", "10", *options]) == 0
    _, end = capsys.readouterr().out.split("params.yaml is written")
    assert said in end and not_said not in end


def test_a_person_may_change_the_mind(clone, quick, pictures):
    first, second = (str(pictures(name, classes("cat", "dog", each=60))) for name in ("first", "second"))
    assert main(["init", second]) == 0
    expected = Path("params.yaml").read_bytes()
    assert main(["init", first, "--minutes", "3", "--generator", "none"]) == 0
    assert list(values()["parts"]) == ["first"]
    assert main(["init", second]) == 0
    assert Path("params.yaml").read_bytes() == expected


# All of them in `make test-all`; two that set the most, always.
PRESETS = [
    pytest.param(name, marks=() if name in ("original-decoder", "original-vq-ar") else pytest.mark.slow)
    for name in preset.names()
    if name != preset.BASE
]


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_that_was_applied_before_is_left_in_the_way(clone, quick, pictures, name):
    root = str(pictures("mine", classes("cat", "dog", each=60)))
    assert main(["init", root]) == 0
    expected = values()
    (clone / "params.yaml").write_bytes(writing.BEFORE.read_bytes())
    preset.apply(name)
    assert main(["init", root]) == 0
    assert values() == expected


def test_more_time_trains_longer_with_the_same_evaluator_and_is_scored_meanwhile(clone, quick):
    """With another evaluator its scores would be of another scale. They say on the page whether more images help."""
    tokenizers = []
    for minutes, times in (("5", 0), ("25", 6), ("240", 6)):
        assert main(["init", "shapes", "--minutes", minutes]) == 0
        found = values()
        if times:
            assert found["train_extractor"]["training"]["images"] == ExtractorTraining().images
        tokenizers.append(found["train_tokenizer"]["training"]["images"])
        evaluate, images = found["train_generator"]["evaluate"], found["train_generator"]["training"]["images"]
        assert (-(-images // evaluate["every"]) if "every" in evaluate else 0) == times
        assert evaluate["extractor"] == ("models/extractor" if times else "data/none")
    assert tokenizers == sorted(set(tokenizers))


@pytest.mark.parametrize(
    ("images", "minutes", "size", "width"),
    [(200_000, "720", 64, 384), (200_000, "120", 32, 256), (4000, "720", 32, 256)],
)
def test_the_largest_networks_are_for_half_a_day_on_a_gpu_and_many_images(
    clone, quick, monkeypatch, images, minutes, size, width
):
    monkeypatch.setattr(command, "this_machine", lambda device: Machine(16, gpu=True, bf16=True))
    monkeypatch.setattr(command, "look", lambda subject: replace(look(subject), images=images, total=images))
    assert main(["init", "shapes", "--minutes", minutes]) == 0
    found = values()
    assert (found["ingest"]["image_size"], found["train_generator"]["dit"]["model"]["width"]) == (size, width)
    assert found["training"]["precision"] == "bf16"


def test_sizes_that_so_few_images_are_not_worth_are_not_measured(clone, quick, pictures):
    assert main(["init", str(pictures("mine", classes("cat", "dog", each=60))), "--minutes", "720"]) == 0
    assert [seen["train_generator"]["dit"]["model"]["width"] for seen in quick] == [128]


def test_an_interrupt_while_measuring_leaves_everything(clone, pictures, monkeypatch):
    def interrupted(**_):
        assert Path("params.yaml").read_bytes() != before
        raise KeyboardInterrupt

    root = str(pictures("mine", classes("cat", "dog", each=60)))
    before = Path("params.yaml").read_bytes()
    monkeypatch.setattr(measuring, "planned", interrupted)
    monkeypatch.setattr(command, "this_machine", lambda device: Machine(2))
    with pytest.raises(KeyboardInterrupt):
        command.init(command.Request(root, 10))
    assert Path("params.yaml").read_bytes() == before


def test_paths_are_written_so_that_stages_find_them(clone, quick, pictures, monkeypatch, tmp_path):
    pictures("clone/data/raw", [f"{number}.png" for number in range(60)])
    home = pictures("home/my pictures", [f"{number}.png" for number in range(60)])
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for typed, written, name in (
        ("data/raw/", "data/raw", "raw"),
        (str(clone / "data" / "raw"), "data/raw", "raw"),
        ("../home/my pictures", str(home), "my-pictures"),
        (str(tmp_path / "link"), str(tmp_path / "link"), "link"),
        ("~/my pictures", str(home), "my-pictures"),
    ):
        subject = opened(typed)
        assert (subject.name, entry(subject, 60)["path"]) == (name, written), typed
    assert main(["init", "~/my pictures", "--minutes", "3"]) == 0
    assert {part: each["path"] for part, each in values()["parts"].items()} == {"my-pictures": str(home)}


def _left_out(root: Path, number: int) -> None:
    """Damaged, transparent, and of one pixel, in turn."""
    path = root / f"{number}.png"
    if number % 3 == 0:
        path.write_bytes(b"no image")
    elif number % 3 == 1:
        Image.new("RGBA", (20, 16), (number, 0, 0, 0)).save(path)
    else:
        Image.new("RGB", (1, 1), (number, 0, 0)).save(path)


def _twice(root: Path, number: int) -> None:
    Image.open(root / f"{number}.png").convert("RGB").save(root / f"{number}.jpg")


def _unlabelled(root: Path, number: int) -> None:
    (root / ("cat" if number else "dog")).mkdir(exist_ok=True)
    for each in range(number, 60, 6):
        if each < 50:
            (root / f"{each}.png").rename(root / ("cat" if number else "dog") / f"{each}.png")


def test_an_older_file_that_it_began_from_may_lack_a_key_that_dvc_reads(clone, quick, pictures):
    root = captioned(pictures("pictures", [f"{number}.png" for number in range(60)]))
    assert main(["init", str(root)]) == 0
    before = writing.BEFORE.read_text()
    older = "".join(line for line in before.splitlines(keepends=True) if "  captions: data/none" not in line)
    assert older != before
    writing.BEFORE.write_text(older)
    assert main(["init", str(root), "--generator", "none"]) == 0
    assert values()["train_generator"]["captions"] == "data/none"


@pytest.mark.parametrize("spoil", [_left_out, _twice, _unlabelled])
def test_what_ingest_leaves_out_does_not_stop_the_dag(clone, quick, pictures, spoil):
    root = pictures("mine", [f"{number}.png" for number in range(60)])
    for number in range(6):
        spoil(root, number)
    assert main(["init", str(root)]) == 0
    run_stage("ingest", "mine")
    run_stage("catalog")
    manifest = json.loads(Path("data/catalog/manifest.json").read_text())
    stored = sum(manifest["images"].values())
    assert stored == (60 if spoil in (_twice, _unlabelled) else 54)
    if spoil is _unlabelled:
        assert manifest["classes"] == ["cat", "dog", "other"] and values()["ingest"]["default_label"] == "other"


def test_few_images_have_a_noise_floor(clone, quick, pictures):
    """Its stage needs the most images of the test split."""
    assert main(["init", str(pictures("mine", [f"{number}.png" for number in range(40)]))]) == 0
    short = values()
    short["train_extractor"]["training"] |= {"images": 128, "warmup": 0, "log_every": 64, "validate_every": 64}
    Path("params.yaml").write_text(yaml.safe_dump(short))
    for stage, part in (("ingest", "mine"), ("catalog", None), ("train_extractor", None), ("reference_stats", None)):
        run_stage(stage, part)
    check(counted=True)
    floor = json.loads(Path("data/reference/manifest.json").read_text())["extractors"]["in_domain"]
    assert floor["held_out"]["n"] >= 8 and floor["held_out"]["fd_se"] > 0 and floor["halves"]["fd_se"] > 0


def test_captions_without_a_word_are_named(clone, quick, pictures, capsys):
    root = captioned(pictures("mine", [f"{number}.png" for number in range(60)]))
    for path in root.glob("*.txt"):
        path.write_text(" \n")
    assert main(["init", str(root)]) == 0
    assert "All captions are empty." in capsys.readouterr().out


def test_a_time_in_which_nothing_would_show_is_named(clone, quick, capsys):
    assert main(["init", "shapes", "--minutes", "0.5"]) == 0
    assert "Shorter trainings would give no useful images: use --minutes" in capsys.readouterr().out


def test_sizes_that_do_not_fit_into_memory_are_passed_over(clone, quick, monkeypatch, capsys):
    """Larger networks are tried where the time allows them, or smaller ones get enough."""
    fits, widths = measuring.planned, list[int]()

    def planned(**kwargs: bool) -> Planned:
        found = fits(**kwargs)
        widths.append(quick[-1]["train_generator"]["dit"]["model"]["width"])
        if widths[-1] > 128:
            found.plans.append(StagePlan("train_generator", source="too large", notes=["it needs 1 TiB"]))
        return found

    monkeypatch.setattr(measuring, "planned", planned)
    note = "`small` are skipped: train_generator cannot run here: it needs 1 TiB"
    for minutes, tried in (("30", [192, 128]), ("19.9", [128, 192]), ("5", [128])):
        widths.clear()
        assert main(["init", "digits", "--minutes", minutes]) == 0
        assert widths == tried and values()["train_generator"]["dit"]["model"]["width"] == 128
        for said in (capsys.readouterr().out, Path("params.yaml").read_text()):
            assert (note in said) == (192 in tried)


def test_where_the_smallest_networks_do_not_fit_it_says_so(clone, quick, monkeypatch, capsys):
    plan = StagePlan("train_tokenizer", source="too large", notes=["it needs 1 TiB"])
    fits, before = measuring.planned, Path("params.yaml").read_bytes()
    monkeypatch.setattr(measuring, "planned", lambda **kwargs: replace(fits(**kwargs), plans=[plan]))
    assert main(["init", "digits"]) != 0
    assert "train_tokenizer cannot run here: it needs 1 TiB" in capsys.readouterr().err
    assert Path("params.yaml").read_bytes() == before and len(quick) == 2


def test_copies_are_measured_by_rendered_scenes(clone, quick, pictures, capsys):
    root = pictures("mine", [f"{number}.png" for number in range(60)])
    for number in range(60, 600):
        os.link(root / f"{number // 10}.png", root / f"{number}.png")
    assert main(["init", str(root)]) == 0
    assert [part["source"] for seen in quick for part in seen["parts"].values()] == ["shapes"] * len(quick)
    assert values()["parts"]["mine"]["source"] == "folder"
    said = capsys.readouterr().out
    assert "600 images, 120 of them inspected" in said
    assert re.search(r"About [56]\d images are different", said)  # half of them are looked at


def test_large_photographs_are_measured_by_rendered_scenes(clone, quick, pictures, monkeypatch):
    """They take minutes to read; the time of `ingest` is theirs all the same."""
    root = pictures("mine", [f"{number}.png" for number in range(60)])
    looked = []

    def look(subject):
        looked.append(replace(facts.look(subject), seconds=2.0))
        return looked[-1]

    monkeypatch.setattr(command, "look", look)
    assert main(["init", str(root), "--minutes", "30"]) == 0
    assert {part["source"] for seen in quick for part in seen["parts"].values()} == {"shapes"}
    plan = measuring.planned(everything=True, history=False)
    for seconds, taken in ((2.0, 120.0), (0.001, 1.0)):  # of an image; of 60, at least what the stage takes anyway
        found = measuring.reading(plan, "mine", replace(looked[0], seconds=seconds))
        assert found.jobs["ingest@mine"].seconds == taken


def test_tars_are_measured_by_rendered_scenes(clone, quick, pictures, tmp_path):
    from tools.init.test_facts import write_tar

    images = pictures("images", [f"{number}.png" for number in range(60)])
    write_tar(tmp_path / "some.tar", images, range(60), lambda number: {"cls": b"%d" % (number % 2)})
    assert main(["init", str(tmp_path / "some.tar")]) == 0
    assert {part["source"] for seen in quick for part in seen["parts"].values()} == {"shapes"}
    part = values()["parts"]["some-tar"]
    assert (part["source"], part["path"]) == ("webdataset", str(tmp_path / "some.tar"))


def test_the_head_of_the_file_says_what_was_found(clone, quick, pictures, capsys):
    root = pictures("mine", classes("cat", "dog", each=60))
    assert main(["init", str(root), "--minutes", "10"]) == 0
    head = Path("params.yaml").read_text().split("\n\n")[0]
    for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[-2:]:
        assert f"# {line}" in head
    assert yaml.safe_load(head) is None
