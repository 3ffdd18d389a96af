"""`darkroom score` from the command line, with a network of a few numbers in Inception's place, or a folder's own."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from additions.brightness import Brightness
from additions.spread import Spread
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.cli import main
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec
from darkroom.data.preparing import Preparation, prepare
from darkroom.errors import DarkroomError
from darkroom.metrics import table
from darkroom.metrics.frechet import frechet_of_two
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.load import Extractor
from darkroom.tools.score import command
from darkroom.tools.score.sides import open_side


class Small(nn.Module):
    """A network with the three outputs of Inception, of 12 pixels each."""

    widths = (12, 6, 4)
    dim = 12

    def outputs(self, images: Tensor) -> Tensor:
        x = images[:, :3, :: images.shape[2] // 2, :: images.shape[3] // 2].float().flatten(1) / 64
        return torch.cat([x, x[:, :6] ** 2, x[:, 3:7]], dim=1)

    def features(self, images: Tensor) -> Tensor:
        return self.outputs(images)[:, : self.dim]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, of no repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "open_extractor", lambda name, source: Extractor(Small(), "5" * 64, 12, "none"))
    return tmp_path


def pixels(seed: int, n: int, bright: int = 0, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(bright, 200 + bright, (n, 8, 8, channels), dtype=np.uint8)


def folder(name: str, images: np.ndarray) -> Path:
    for number, image in enumerate(images):
        path = Path(name) / f"{number % 2}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.squeeze()).save(path)
    return Path(name)


def run(*arguments: str | Path) -> dict[str, Any]:
    assert main(["score", *map(str, arguments), "--threads", "1"]) == 0
    return json.loads(Path("score/scores.json").read_text())


def error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["score", *map(str, arguments), "--threads", "1"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.startswith("darkroom score: error: ")  # one sentence
    assert not Path("score").exists()
    return text


def in_order(images: np.ndarray) -> np.ndarray:
    """The images in the order of their paths: those of even numbers first."""
    return np.concatenate([images[::2], images[1::2]])


def test_two_folders(capsys: pytest.CaptureFixture[str]) -> None:
    made, real = pixels(0, 30, bright=40), pixels(1, 50)
    found = run(folder("made", made), "--against", folder("real", real))
    scores = found["scores"]
    features = (Small().features(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())) for x in (made, real))
    assert scores["fid"] == pytest.approx(frechet_of_two(*features), rel=1e-9)
    assert {"inception_kid", "sfid", "inception_score", "inception_score_splits", "precision", "recall"} < scores.keys()
    assert {"density", "coverage", "fid_se", "sfid_se", "recall_se", "fid_debiased"} < scores.keys()
    assert scores["n"] == 30
    for who in ("real", "samples"):
        assert (found["floor"][who]["n"], found["floor"][who]["n_reference"]) == (25, 25)
    assert found["floor"]["real"]["fid"] < found["floor"]["samples"]["fid"] / 2  # brighter samples are far away
    protocol = found["card"]["protocol"]
    assert protocol["extractors"] == {"inception": {"sha256": "5" * 64, "dim": 12, "resize": "none"}}
    assert protocol["reference"]["images"]["n"] == 50
    hashes = [hashlib.sha256(in_order(x).transpose(0, 3, 1, 2).tobytes()).hexdigest() for x in (made, real)]
    assert [found["card"]["treatment"]["samples"], protocol["reference"]["images"]["sha256"]] == hashes
    assert set(found["card"]["formulas"]) == scores.keys() - {"n"}
    assert not re.search(r"made|real/|/tmp", json.dumps(found))  # no path
    assert Image.open("score/nearest.png").height > 8 * 8  # a row for each of 8 samples
    shown = capsys.readouterr().out
    assert re.search(r"fid( +[\d.]+ ± [\d.]+){3}", shown) and re.search(
        r"images +30 +25 +25\nagainst +50 +25 +25", shown
    )
    assert "score/nearest.png" in shown


def test_real_images_are_no_better_than_other_real_images() -> None:
    """Samples of the reference's own distribution stand beside it as equals, though half the reference is another."""
    for seed in range(3):
        made, real = pixels(2 * seed, 60), pixels(2 * seed + 1, 120)
        floor = run(folder(f"made{seed}", made), "--against", folder(f"real{seed}", real))["floor"]
        for score in ("coverage", "recall", "fid", "fid_debiased"):
            one, other = floor["samples"], floor["real"]
            error = (
                one[f"{score.removesuffix('_debiased')}_se"] ** 2 + other[f"{score.removesuffix('_debiased')}_se"] ** 2
            ) ** 0.5
            assert abs(one[score] - other[score]) < 3 * error, score


def test_the_floor_is_of_the_same_reference_images() -> None:
    """As many samples as half the reference: both columns have the numbers of a run against that half alone."""
    real = pixels(1, 60)
    found = run(folder("made", pixels(0, 30)), "--against", folder("real", real))
    others = sorted(drawn(60)[30:])
    np.savez("others.npz", arr_0=in_order(real)[others])
    np.savez("first.npz", arr_0=in_order(real)[drawn(60)[:30]])
    for samples, column in (("made", "samples"), ("first.npz", "real")):
        alone = run(samples, "--against", "others.npz")["scores"]
        for name in ("fid", "precision", "recall", "density", "coverage", "inception_kid"):
            assert found["floor"][column][name] == pytest.approx(alone[name], rel=1e-6), name


def test_all_kinds_of_input_are_one(place: Path) -> None:
    made, real = pixels(0, 30), pixels(1, 40)
    reference = folder("real", real)
    expected = run(folder("made", made), "--against", reference)["scores"]
    np.savez("made.npz", arr_0=in_order(made))
    with tarfile.open("made.tar", "w") as tar:
        for number, image in enumerate(in_order(made)):
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            for ending, data in (("png", buffer.getvalue()), ("cls", b"3")):
                member = tarfile.TarInfo(f"{number:03}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    (place / "shards").mkdir()
    (place / "made.tar").rename(place / "shards" / "0.tar")
    for other in ("made.npz", "shards", "shards/0.tar"):
        assert run(other, "--against", reference)["scores"] == expected
    assert run("made.npz", "--against", reference, "--batch", "7")["scores"] == pytest.approx(expected, rel=1e-9)


def test_published_statistics() -> None:
    made, real = pixels(0, 30), pixels(1, 40)
    expected = run(folder("made", made), "--against", folder("real", real))["scores"]
    outputs = Small().outputs(torch.from_numpy(real.transpose(0, 3, 1, 2).copy())).double().numpy()
    pool, spatial, _ = np.split(outputs, [12, 18], axis=1)
    adm = {"mu": pool.mean(0), "sigma": np.cov(pool.T), "mu_s": spatial.mean(0), "sigma_s": np.cov(spatial.T)}
    np.savez("edm.npz", mu=adm["mu"], sigma=adm["sigma"])
    np.savez("adm.npz", arr_0=real[:25], **adm)
    of_edm = run("made", "--against", "edm.npz")
    assert of_edm["scores"]["fid"] == pytest.approx(expected["fid"], rel=1e-6)
    assert of_edm["floor"] is None and "precision" not in of_edm["scores"] and "sfid" not in of_edm["scores"]
    of_adm = run("made", "--against", "adm.npz", "--convention", "adm")
    for name in ("fid", "sfid"):  # of the statistics, and not of the 25 images beside them
        assert of_adm["scores"][name] == pytest.approx(expected[name], rel=1e-6)
    assert of_adm["scores"]["recall"] != expected["recall"]
    splits = "inception_score_splits"  # one of 30 images, where ADM's has 5,000: it has no error
    assert of_adm["scores"][splits] == of_adm["scores"]["inception_score"] and f"{splits}_se" not in of_adm["scores"]
    assert f"{splits}_se" in expected
    assert of_adm["card"]["protocol"]["reference"]["images"]["n"] == 25


def test_a_limit_is_a_draw() -> None:
    made, real = folder("made", pixels(0, 60)), folder("real", pixels(1, 60))
    found = run(made, "--against", real, "--limit", "25")
    assert (found["scores"]["n"], found["card"]["protocol"]["reference"]["images"]["n"]) == (25, 25)
    assert found == run(made, "--against", real, "--limit", "25")
    np.savez("first.npz", arr_0=in_order(pixels(0, 60))[:25])
    assert run("first.npz", "--against", real, "--limit", "25")["scores"] != found["scores"]


def test_a_folder_of_darkroom_is_an_extractor(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(place)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Classifier(3, 10, [8, 16], 12, 0.5).save_pretrained(Path("extractor"))
    write_manifest(Path("extractor"), "extractor", files=file_hashes(Path("extractor")))
    made, real = folder("made", pixels(0, 30)), folder("real", pixels(1, 40))
    found = run(made, "--against", real, "--extractor", "extractor")
    assert {"fd", "kid", "precision", "coverage"} < found["scores"].keys() and "fid" not in found["scores"]
    assert found["card"]["protocol"]["extractors"]["in_domain"]["dim"] == 12


def test_a_new_metric_of_the_tables_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FEATURE_METRICS", (*table.FEATURE_METRICS, Spread()))
    monkeypatch.setattr(table, "SAMPLE_METRICS", (*table.SAMPLE_METRICS, Brightness()))
    made = pixels(0, 30)
    found = run(folder("made", made), "--against", folder("real", pixels(1, 50)))
    assert found["scores"]["brightness"] == pytest.approx(made.mean()) and found["scores"]["spread_inception"] > 0
    assert "spread_inception_se" in found["floor"]["real"] and "brightness" not in found["floor"]["real"]
    assert {"brightness", "spread_inception"} < found["card"]["formulas"].keys()


def test_copies_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    real = pixels(1, 40)
    found = run(folder("made", real[:30]), "--against", folder("real", real))
    assert found["scores"]["precision"] == 1
    assert "median distance to the nearest reference image: 0; between" in capsys.readouterr().out


def test_without_weights_one_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setenv("TORCH_HOME", str(place))
    made, real = folder("made", pixels(0, 20)), folder("real", pixels(1, 20))
    for name, file in (
        ("inception", "weights-inception-2015-12-05-6726825d.pth"),
        ("dinov2", "dinov2_vitl14_pretrain.pth"),
        ("clip", "ViT-L-14-336px.pt"),
    ):
        text = error(capsys, made, "--against", real, "--extractor", name)
        assert str(place / "hub" / "checkpoints" / file) in text and "sha256" in text and "`--weights`" in text


def npz(name: str, **arrays: Any) -> str:
    np.savez(name, **arrays)
    return name


def npy(name: str) -> str:
    with Path(name).open("wb") as file:
        np.save(file, pixels(0, 30))
    return name


def test_bad_samples_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = folder("real", pixels(1, 30))
    good = folder("good", pixels(0, 30))
    np.savez("huge.npz", arr_0=np.zeros((30, 8, 8, 3), np.float32))
    (place / "empty").mkdir()
    (place / "text.txt").write_text("no image")
    (place / "text.npz").write_text("no archive")

    def broken(name: str, change: Any) -> Path:
        made = folder(name, pixels(0, 30))
        change(made / "1" / "005.png")
        return made

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-60])

    def grey(path: Path) -> None:
        Image.open(path).convert("L").save(path)

    def wide(path: Path) -> None:
        Image.open(path).resize((9, 8)).save(path)

    def deep(path: Path) -> None:
        Image.fromarray(np.zeros((8, 8), np.uint16)).save(path)

    for made, words in (
        ("nowhere", "nowhere is neither a folder nor a file"),
        ("empty", "empty has no images"),
        ("text.txt", r"text\.txt is not a folder, a \.tar or an \.npz"),
        ("text.npz", r"text\.npz is not a complete \.npz"),
        (npy("array.npz"), r"array\.npz is not a complete \.npz"),
        ("huge.npz", r"huge\.npz: `arr_0` is float32 \(30, 8, 8, 3\)"),
        (npz("keys.npz", images=np.zeros(3)), r"keys\.npz has images, but neither images, `arr_0`, nor statistics"),
        (
            npz("stats.npz", mu=np.zeros(12), sigma=np.eye(12)),
            r"stats\.npz contains statistics, but the samples must be",
        ),
        (folder("few", pixels(0, 19)), "few has 19 images, but scores with standard errors need at least 20"),
        (broken("cut", cut), r"cut/1/005\.png cannot be read as an image: "),
        (broken("grey", grey), r"grey/1/005\.png has 8 x 8 pixels, grey, but grey/0/000\.png has 8 x 8 pixels, colour"),
        (broken("wide", wide), r"wide/1/005\.png has 8 x 9 pixels, colour, but wide/0/000\.png has 8 x 8"),
        (broken("deep", deep), r"deep/1/005\.png has more than 8 bits a channel"),
    ):
        assert re.search(words, error(capsys, made, "--against", real)), words
    for against, words in (
        (
            npz("dim.npz", mu=np.zeros(7), sigma=np.eye(7)),
            r"dim\.npz has statistics `mu` of 7 features, but inception",
        ),
        (npz("nan.npz", mu=np.full(12, np.nan), sigma=np.eye(12)), r"nan\.npz has `mu` .* not finite"),
        (npz("text.npz", mu=np.array(["a"] * 12), sigma=np.eye(12)), r"text\.npz has `mu` .* not as real numbers"),
        (npz("complex.npz", mu=np.zeros(12), sigma=np.eye(12) * 1j), r"complex\.npz has .* complex128, not as real"),
        (
            npz("minus.npz", mu=np.zeros(12), sigma=-np.eye(12)),
            r"minus\.npz has `mu` and .* not a covariance: .* -1",
        ),
        (npz("odd.npz", mu=np.zeros(12), sigma=np.eye(3)), r"odd\.npz has `mu` of shape \(12,\) and a covariance"),
        (
            npz("s.npz", mu=np.zeros(12), sigma=np.eye(12), mu_s=np.zeros(5), sigma_s=np.eye(5)),
            r"s\.npz has statistics `mu_s` of 5 features, but inception has 6",
        ),
    ):
        assert re.search(words, error(capsys, good, "--against", against)), words


def test_sets_that_do_not_fit_each_other(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grey, colour = folder("grey", pixels(0, 30, channels=1)), folder("colour", pixels(1, 30))
    for one, other in ((grey, colour), (colour, grey)):
        assert "grey has grey images, but colour does not: convert" in error(capsys, one, "--against", other)
    large = folder("large", pixels(2, 30).repeat(2, 1).repeat(2, 2))
    found = run(colour, "--against", large)["card"]
    assert any(
        note.startswith("samples are of 8 x 8 pixels, colour, reference images of 16 x") for note in found["notes"]
    )
    assert found["protocol"]["image_shape"] == [3, 8, 8]
    assert found["protocol"]["reference"]["images"]["shape"] == [3, 16, 16]
    assert not any("samples are of" in note for note in run(colour, "--against", colour)["card"]["notes"])


def test_statistics_beside_images_are_of_inception(place: Path) -> None:
    """ADM's file holds both: another network compares with its images."""
    real = pixels(1, 30)
    np.savez("adm.npz", arr_0=real, mu=np.zeros(7), sigma=np.eye(7))
    made = folder("made", pixels(0, 30))
    of_images = run(made, "--against", folder("real", in_order(real)), "--extractor", "dinov2")["scores"]
    found = run(made, "--against", "adm.npz", "--extractor", "dinov2")
    assert found["scores"].keys() == of_images.keys() and found["card"]["protocol"]["reference"]["statistics"] is None
    for name, value in found["scores"].items():
        assert value == pytest.approx(of_images[name], rel=1e-9, abs=1e-12)


def test_images_of_another_size_than_an_extractor_was_trained_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(place)
    Classifier(3, 10, [8, 16], 12, 0.5).save_pretrained(Path("extractor"))
    write_manifest(Path("extractor"), "extractor", image_shape=[3, 16, 16], files=file_hashes(Path("extractor")))
    made, real = folder("made", pixels(0, 30)), folder("real", pixels(1, 30))
    text = error(capsys, made, "--against", real, "--extractor", "extractor")
    assert "made has images of 8 x 8 pixels, colour, but the extractor was trained on 16 x 16 pixels, colour" in text


def test_a_tar_that_ends_early_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = folder("real", pixels(1, 30))
    with tarfile.open("made.tar", "w") as tar:
        tar.add(real)
    data = Path("made.tar").read_bytes()
    Path("made.tar").write_bytes(data[: len(data) // 2])
    assert "made.tar is damaged" in error(capsys, "made.tar", "--against", real)


def test_an_npz_that_is_damaged_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    real = folder("real", pixels(1, 30))
    np.savez("made.npz", arr_0=pixels(0, 30))
    data = bytearray(Path("made.npz").read_bytes())
    data[2000] ^= 1
    Path("made.npz").write_bytes(data)
    assert re.search(r"made\.npz is not a complete .*CRC", error(capsys, "made.npz", "--against", real))


def test_whatever_bit_of_an_npz_is_wrong_is_one_sentence(place: Path) -> None:
    """Also in the header of an array and in what is compressed, which raise errors of several kinds."""
    equal = np.repeat(np.arange(30, dtype=np.uint8), 192).reshape(30, 8, 8, 3)
    np.savez_compressed("whole.npz", arr_0=equal, mu=np.zeros(20), sigma=np.eye(20))
    whole, draws, refused = Path("whole.npz").read_bytes(), np.random.default_rng(0), 0
    for _ in range(400):
        data = bytearray(whole)
        data[draws.integers(len(data))] ^= 1 << draws.integers(8)
        Path("bit.npz").write_bytes(data)
        try:
            images = open_side(Path("bit.npz")).images
            assert images is None or sum(len(group) for group in images.batches(7)) in (0, 30)
        except DarkroomError as error:
            assert "bit.npz" in str(error)
            refused += 1
    assert refused > 200


def test_features_that_are_not_finite_name_the_image(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Small):
        def outputs(self, images: Tensor) -> Tensor:
            found = super().outputs(images)
            found[(images[:, 0, 0, 0] == 255).nonzero()] = torch.nan
            return found

    monkeypatch.setattr(command, "open_extractor", lambda name, source: Extractor(Broken(), "5" * 64, 12))
    made = pixels(0, 30)
    made[4, 0, 0, 0] = 255
    text = error(capsys, folder("made", made), "--against", folder("real", pixels(1, 30)))
    assert "the features of made/0/004.png are not finite" in text


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    made, real = folder("made", pixels(0, 20)), folder("real", pixels(1, 20))
    for options, words in (
        (["--extractor", "resnet"], "use inception, dinov2, clip, or a folder"),
        (["--extractor", "dinov2", "--convention", "adm"], "--protocol adm needs inception"),
        (["--extractor", "made"], "made"),
    ):
        assert words in error(capsys, made, "--against", real, *options)


def test_where_scores_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder("made", pixels(0, 20))
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(Path(__file__).parents[3] / name, name)
    monkeypatch.setattr("darkroom.tools.score.command.score", None)  # refused before any network runs
    for out, reason in (
        ("params.yaml", "params.yaml is not a writable folder"),
        ("params.yaml/x", "params.yaml is not a writable folder"),
        ("samples/generator", "which the stage sample_generator writes"),
    ):
        assert reason in error(capsys, made, "--against", made, "--out", out)


def test_tars_beside_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    made, real = pixels(0, 30), pixels(1, 30)
    folder("made", made)
    reference = folder("real", real)
    expected = run("made", "--against", reference)["scores"]
    Path("samples").mkdir()
    with tarfile.open("samples/00000.tar", "w") as tar:
        tar.add("made")
    Image.fromarray(made[0].repeat(9, 0)).save("samples/grid.png")  # of another size: it would be refused
    assert run("samples", "--against", reference)["scores"] == expected
    folder("samples/pictures", real)
    Path("score").rename("kept")
    text = error(capsys, "samples", "--against", reference)
    assert "samples has both tars, such as samples/00000.tar, and 31 image files, such as samples/grid.png" in text


def test_size_makes_any_images_one_set(capsys: pytest.CaptureFixture[str]) -> None:
    made, real = folder("made", pixels(0, 30)), folder("real", pixels(1, 30))
    Image.fromarray(pixels(2, 1)[0].repeat(2, 1)).save(made / "0" / "wide.png")
    Image.fromarray(pixels(2, 1, channels=1)[0, :, :, 0]).save(made / "0" / "grey.png")
    Image.fromarray(pixels(2, 1, channels=4)[0]).save(real / "0" / "clear.png")
    text = error(capsys, made, "--against", real)
    assert "made/0/grey.png has 8 x 8 pixels, grey" in text and "--size N" in text
    found = run(made, "--against", real, "--size", "6")
    protocol = found["card"]["protocol"]
    assert protocol["preparation"] == {"size": 6, "channels": "RGB", "crop": "center", "resample": "bicubic"}
    assert protocol["image_shape"] == protocol["reference"]["images"]["shape"] == [3, 6, 6]
    wide = Image.open(made / "0" / "wide.png")
    how = Preparation(ImageSpec(6, "RGB", "png"), "center", "bicubic", 0, 10**6, 1, 95)
    as_ingest = np.asarray(prepare(wide, how, "wide")).transpose(2, 0, 1)
    images = open_side(made, size=6).images
    assert images is not None and (next(images.batches(1, [16])) == as_ingest).all()  # after 15 and grey
    np.savez("made.npz", arr_0=pixels(0, 30))
    of_files = open_side(folder("plain", in_order(pixels(0, 30))), size=6).images
    of_npz = open_side(Path("made.npz"), size=6).images
    assert of_files is not None and of_npz is not None and len(of_npz) == len(of_files)
    assert (next(of_npz.batches(1, [0])) == next(of_files.batches(1, [0]))).all()


def test_notes_and_copies_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    real = pixels(1, 40)
    made = np.concatenate([pixels(0, 15), real[:6]])
    found = run(folder("made", made), "--against", folder("real", real))
    shown = capsys.readouterr().out
    assert found["copies"] == 6
    assert "note: 6 of 21 samples are reference images, pixel for pixel" in shown
    assert "note: 21 samples are fewer than twice the 12 features" in shown
    for line in (
        "scores of 21 samples",
        "computing the noise floor from real images: about ",
        "the nearest of 40 reference images",
    ):
        assert line in shown
    assert run("real", "--against", "made", "--limit", "20")["copies"] is not None
    assert run(folder("other", pixels(5, 30)), "--against", "real")["copies"] == 0


def test_a_wrong_path_is_said_before_torch_is_loaded() -> None:
    code = "import sys; from darkroom.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "score", "no", "--against", "no"],
        env=os.environ | {"PYTHONPATH": str(Path(str(command.__file__)).parents[3])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert "no is neither a folder nor a file" in done.stderr
