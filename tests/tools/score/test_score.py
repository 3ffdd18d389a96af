"""`darkroom score` from the command line, with a network of a few numbers in Inception's place, or a folder's own."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.cli import main
from darkroom.metrics.frechet import frechet_of_two
from darkroom.models.evaluators.extractor.network import Classifier
from darkroom.models.evaluators.load import Extractor
from darkroom.tools.score import command


class Small(nn.Module):
    """A network with the three outputs of Inception, of 12 pixels each."""

    widths = (12, 6, 4)
    dim = 12

    def outputs(self, images: Tensor) -> Tensor:
        x = images[:, :3, ::4, ::4].float().flatten(1) / 64
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
    assert scores["n"] == 30 and found["floor"]["n"] == 25
    assert found["floor"]["fid"] < scores["fid"] / 2  # brighter samples are far from real images
    protocol = found["card"]["protocol"]
    assert protocol["extractors"] == {"inception": {"sha256": "5" * 64, "dim": 12, "resize": "none"}}
    assert protocol["reference"]["images"]["n"] == 50
    assert set(found["card"]["formulas"]) == scores.keys() - {"n"}
    assert not re.search(r"made|real/|/tmp", json.dumps(found))  # no path
    html = Path("score/index.html").read_text()
    assert html.count("data:image/png;base64,") == 2 and "http" not in html
    shown = capsys.readouterr().out
    assert re.search(r"fid +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+", shown) and "score/index.html" in shown


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


def test_copies_are_seen() -> None:
    real = pixels(1, 40)
    found = run(folder("made", real[:30]), "--against", folder("real", real))
    assert found["scores"]["precision"] == 1
    assert "The median distance of a sample to the nearest is 0;" in Path("score/index.html").read_text()


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
        ("empty", "empty holds no image"),
        ("text.txt", r"text\.txt is neither a folder, nor a \.tar, nor an \.npz"),
        ("text.npz", r"text\.npz is no whole \.npz"),
        ("huge.npz", r"huge\.npz holds `arr_0` of float32 \(30, 8, 8, 3\)"),
        (npz("keys.npz", images=np.zeros(3)), r"keys\.npz holds images, and neither images, `arr_0`, nor statistics"),
        (npz("stats.npz", mu=np.zeros(12), sigma=np.eye(12)), r"stats\.npz holds statistics, and the samples must be"),
        (folder("few", pixels(0, 19)), "few holds 19 images, and scores with their errors need 20"),
        (broken("cut", cut), r"cut/1/005\.png cannot be read as an image: "),
        (broken("grey", grey), r"grey/1/005\.png is grey and grey/0/000\.png is colour"),
        (broken("wide", wide), r"wide/1/005\.png is 8 x 9 and wide/0/000\.png is 8 x 8"),
        (broken("deep", deep), r"deep/1/005\.png has more than 8 bits a channel"),
    ):
        assert re.search(words, error(capsys, made, "--against", real)), words
    for against, words in (
        (
            npz("dim.npz", mu=np.zeros(7), sigma=np.eye(7)),
            r"dim\.npz holds statistics `mu` of 7 features, and inception",
        ),
        (npz("nan.npz", mu=np.full(12, np.nan), sigma=np.eye(12)), r"nan\.npz holds values in `mu` .* not finite"),
        (npz("odd.npz", mu=np.zeros(12), sigma=np.eye(3)), r"odd\.npz holds `mu` of shape \(12,\) and a covariance"),
        (
            npz("s.npz", mu=np.zeros(12), sigma=np.eye(12), mu_s=np.zeros(5), sigma_s=np.eye(5)),
            r"s\.npz holds statistics `mu_s` of 5 features, and inception has 6",
        ),
    ):
        assert re.search(words, error(capsys, good, "--against", against)), words


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
    assert re.search(r"made\.npz is damaged .*CRC", error(capsys, "made.npz", "--against", real))


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
        (["--limit", "0"], "--limit is 0"),
        (["--extractor", "resnet"], "neither inception, dinov2, clip nor a folder"),
        (["--extractor", "dinov2", "--convention", "adm"], "--convention adm is one of Inception"),
        (["--extractor", "made"], "made, which holds no whole manifest.json"),
    ):
        assert words in error(capsys, made, "--against", real, *options)
