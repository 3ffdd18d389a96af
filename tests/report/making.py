"""A small project to report on: artifacts as the stages write them, without running a stage."""

import copy
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import manifest_hash, write_manifest
from darkroom.data.grid import image_grid, save_png
from darkroom.metrics.codes import histogram

CLASSES = ["<b>zero</b>", "one & two", "three"]
FLOOR = {"fd": 2.587525, "fd_debiased": 1.370839, "fd_se": 1.157983, "kid": 0.1205, "kid_se": 0.2563}
HALVES = {"fd": 1.299134, "fd_debiased": 0.958117, "fd_se": 0.623835, "kid": -0.0643, "kid_se": 0.1623}
REAL = {"held_out": 0.8125, "held_out_se": 0.0625, "held_out_confident": 0.6875, "constant": 0.34375}
BASELINES: dict[str, Any] = {
    "held_out": {"in_domain": {"n": 38, **FLOOR}, "inception": {"n": 38, **FLOOR}},
    "label_accuracy": {**REAL, "without_held_out": [], "never_recognised": []},
}
EVALUATOR: dict[str, Any] = {
    "n": 3,
    "accuracy": 0.75,
    "mean_class_accuracy": 0.625,
    "by_class": {
        CLASSES[0]: {"n": 913, "accuracy": 0.9375, "confident": 0.875},
        CLASSES[1]: {"n": 7, "accuracy": 0.0, "confident": 0.125},
    },
}
DIT = {
    "fd": 4.2345,
    "fd_debiased": 4.1101,
    "fd_se": 0.0786,
    "kid": -0.026927,
    "kid_se": 0.023475,
    "label_accuracy": 0.975,
    "n": 40,
}
INCEPTION = {"fid": 12.25, "fid_debiased": 11.5, "fid_se": 0.75, "inception_kid": 0.004, "inception_kid_se": 0.0012}
OWN = {"fd": 9.5, "fd_debiased": 9.25, "fd_se": 0.5, "kid": 0.5, "kid_se": 0.25, "confident": 0.875, "n": 20}
TOKENIZER = {"psnr": 42.140856572300706, "ssim": 0.9885244112525691, "rfd": 0.0019287890303303357}
CLIP = {
    "zero_shot_accuracy": 0.8125,
    "zero_shot_accuracy_se": 0.0238,
    "image_to_text_r1": 0.75,
    "image_to_text_r1_se": 0.026,
}
EXTRACTED = {"fd": 2.25, "fd_debiased": 2.125, "fd_se": 0.25, "kid": 0.25, "kid_se": 0.125, "label_accuracy": 0.75}
DECODER = {
    **EXTRACTED,
    **{"psnr": 14.25, "psnr_se": 0.125, "clip_image": 0.875, "clip_image_se": 0.0125},
    **{"clip_text": 0.5, "clip_text_se": 0.0125, "clip_text_real": 0.625, "clip_text_real_se": 0.015625},
    **{"colour": 0.9375, "colour_se": 0.0125, "colour_and_form": 0.8125, "colour_and_form_se": 0.025},
    "n": 20,
}
TEXT = {**DECODER, "fd_debiased": 3.5, "colour_and_form": 0.625}
PRIOR = {"cosine": 0.84375, "cosine_se": 0.0078125, "cosine_text": 0.59375, "cosine_other": 0.375}
UNETS = ("base", "up")
BANDS = ("loss_time_0_25", "loss_time_25_50", "loss_time_50_75", "loss_time_75_100")
VOID = {"meta", "img", "br", "hr"}


def curve(folder: Path, name: str, points: list[tuple[Any, Any]]) -> None:
    """Write one of DVCLive's tables."""
    path = folder / "plots/metrics" / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    column = name.rpartition("/")[2]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in [("step", column), *points]))


def evaluated() -> None:
    """Write the curves of a DiT that was validated by bands of the time, and scored while it trained."""
    folder = Path("curves/generator")
    for number, band in enumerate(BANDS):
        curve(folder, f"val/{band}", [(200, 4.0 - number), (300, 3.5 - number / 2)])
    for name, last in (("fd", 3.0), ("fd_debiased", -0.5), ("kid", 0.1), ("label_accuracy", 0.75)):
        curve(folder, f"eval/{name}", [(100, 0.5), (300, last)])


def grid(path: Path, images: int, columns: int) -> None:
    """Write a grid of images that all differ."""
    pixels = np.arange(images * 3 * 8 * 8, dtype=np.uint64).reshape(images, 3, 8, 8) % 251
    path.parent.mkdir(parents=True, exist_ok=True)
    save_png(path, image_grid(pixels.astype(np.uint8), columns=columns, scale=2))


def part(name: str, images: int, shorter_side: tuple[int, ...] = (8, 8, 8), **damage: dict[str, int]) -> dict[str, Any]:
    """Return what the catalog says of a part; `damage` as quarantine, repair and keep."""
    return {
        "name": name,
        "sha256": "",
        "images": images,
        "shards": 9,
        "bytes": 1_234_567,
        "mirror": False,
        "shorter_side": shorter_side,
        "enlarged": 0,
        "quarantine": {"quarantine": {}, "repair": {}, "keep": {}, **damage},
    }


def project(
    *,
    inception: bool = False,
    generating: bool = False,
    tokenizer: dict[str, float] = TOKENIZER,
    codes: tuple[list[int], list[int]] | None = None,
    told: bool = False,
) -> None:
    """Write into the working folder all that `report` reads.

    inception: with its distances.
    generating: with images of the tokenizer's own.
    codes: of a discrete tokenizer, in two splits.
    told: with images of embeddings and of captions, and a prior.
    """
    dit: dict[str, Any] = DIT | (INCEPTION if inception else {})
    counts = {split: {name: 10 * i + j for j, name in enumerate(CLASSES)} for i, split in enumerate(("train", "val"))}
    counts["test"] = dict.fromkeys(CLASSES, 1234)
    catalog, reference = Path("data/catalog"), Path("data/reference")
    samples, decoded = Path("samples/generator"), Path("samples/reconstructions")
    pictures = Path("samples/catalog")
    for folder, images, columns in ((pictures, 9, 3), (samples, 30, 3), (decoded, 48, 16)):
        grid(folder / "grid.png", images, columns)
    image = {"size": 8, "channels": "RGB", "format": "png"}
    catalog.mkdir(parents=True)
    write_manifest(
        catalog,
        "catalog",
        classes=CLASSES,
        images={split: sum(of.values()) for split, of in counts.items()},
        unlabelled={"train": 3, "val": 0, "test": 0},
        counts=counts,
        image=image,
        captions={"train": 1200, "val": 0, "test": 0},
        parts=[part("first", 900), part("second", 897)],
        duplicates={"images": 7, "across_parts": 5, "across_splits": 2, "first": []},
    )
    write_manifest(pictures, "pictures", catalog=manifest_hash(catalog), files={})
    floor = {"sha256": "", "dim": 64, "n": 1440, "kid_n": 1439, "held_out": {"n": 260, **FLOOR}, "halves": HALVES}
    reference.mkdir(parents=True)
    write_manifest(
        reference,
        "reference",
        catalog=manifest_hash(catalog),
        split="train",
        held_out="test",
        extractors={"in_domain": floor} | ({"inception": floor} if inception else {}),
        evaluator=EVALUATOR,
    )
    sampler = {"solver": "euler", "steps": 25, "guidance": 1.5, "seed": 1, "images": 40, "batch": 20}
    of_class = {name: 13 + (number == 0) for number, name in enumerate(CLASSES)}
    write_manifest(samples, "samples", classes=CLASSES, images=40, counts=of_class, sampler=sampler, files={})
    (decoded / "codes.tsv").write_text(histogram(*([np.array(of) for of in codes] if codes else (None, None))))
    write_manifest(decoded, "reconstructions", images=16, split="test", codes=len(codes[0]) if codes else 0)
    own = Path("samples/tokenizer")
    if generating:
        grid(own / "grid.png", 20, 10)
        write_manifest(own, "samples", classes=[], images=20, sampler={"min_p": 0.25, "temperature": 1.5})
    else:
        own.mkdir(parents=True)
        write_manifest(own, "samples", classes=[], images=0, sampler={})
        for folder in ("metrics", "cards"):
            write_json(Path(folder) / "tokenizer_samples.json", {})
    made = {"generator": samples, "tokenizer_samples": own}
    for name, scores, fingerprint, n in (
        ("generator", dit, manifest_hash(reference), 40),
        ("tokenizer", tokenizer, manifest_hash(catalog), 260),
        *([("tokenizer_samples", OWN, manifest_hash(reference), 20)] if generating else []),
    ):
        write_json(Path(f"metrics/{name}.json"), scores)
        card = {
            "protocol": {"n_fake": n, "reference": {"id": fingerprint, "split": "test"}, "classes": "frequency"},
            "treatment": {"samples": manifest_hash(made[name]) if name in made else None, "seed": None},
            "baselines": BASELINES if name != "tokenizer" else {},
            "formulas": {key: f"formula of {key} <&>" for key in scores if key != "n"},
            "notes": [],
        }
        write_json(Path(f"cards/{name}.json"), card)
    write_json(Path("metrics/clip.json"), {**CLIP, "images": 260, "captions": 10})
    judged = {name: f"formula of {name} <&>" for name in CLIP if not name.endswith("_se")}
    protocol = {"reference": {"id": manifest_hash(catalog), "split": "test"}, "images": 260, "captions": 10}
    constant = {"zero_shot_accuracy": {"constant": 0.21875}}
    formulas = {**judged, "se": "of a share"}
    card = {"protocol": protocol, "treatment": {"clip": "abc"}, "baselines": constant, "formulas": formulas}
    write_json(Path("cards/clip.json"), card)
    decoding(manifest_hash(reference), told)
    for name in ("teacher", "tokenizer", "extractor", "generator", "clip"):
        folder = Path("curves") / name
        curve(folder, "train/loss", [(100, 2.0), (200, 0.5), (300, 0.01)])
        curve(folder, "val/loss", [(200, 0.4), (300, 0.02)])
        curve(folder, "learning_rate", [(100, 0.001), (200, 0.0005), (300, 0)])
    for name in ("generator", "tokenizer", "decoder", "text"):
        folder = Path("samples/nearest") / name
        folder.mkdir(parents=True)
        write_manifest(folder, "nearest", images=0, reason="there are no images", files={})
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" class="dag"><g><text>ingest</text></g></svg>\n'
    Path("docs").mkdir()
    Path("docs/dag.svg").write_text(drawing)


def decoding(reference: str, told: bool) -> None:
    """Write decoder, texts, prior and scene reader: trained and scored, or as the stages leave them where idle."""
    for name in ("prior", "scene_reader", "classifier", "distilled", *(f"decoder/{unet}" for unet in UNETS)):
        folder = Path("curves") / name
        folder.mkdir(parents=True)
        if told:
            curve(folder, "train/loss", [(100, 2.0), (200, 0.5)])
            curve(folder, "val/loss", [(200, 0.4)])
    prior = Path("models/prior")
    prior.mkdir(parents=True)
    scores = {"split": "test", "images": 20, **PRIOR}
    write_manifest(prior, "prior", trained=told, **({"scores": scores} if told else {"reason": "there is no CLIP"}))
    how = {"common": {"solver": "dpm", "steps": 16, "guidance": 2.0, "eta": 0.0}, "unets": {"up": {"steps": 8}}}
    for name, of, pictures in (
        ("decoder", DECODER, ("grid", "variations", "interpolations", "inpainted")),
        ("text", TEXT, ("grid",)),
    ):
        folder, where = Path("samples") / name, ((Path("metrics") / f"{name}.json"), (Path("cards") / f"{name}.json"))
        folder.mkdir(parents=True)
        if not told:
            write_manifest(folder, "samples", images=0, classes=[], sampler={}, reason="no U-Net is trained", files={})
            for path in where:
                write_json(path, {})
            continue
        for picture in pictures:
            grid(folder / f"{picture}.png", 18, 9)
        write_manifest(
            folder,
            "samples",
            images=20,
            classes=CLASSES,
            split="test",
            condition="image" if name == "decoder" else "text",
            sampler=how if name == "decoder" else {"decoder": how, "prior": {"solver": "ddim", "steps": 20}},
            files={f"{picture}.png": "" for picture in pictures},
            **({"prior": manifest_hash(prior)} if name == "text" else {}),
        )
        write_json(where[0], of)
        card = {
            "protocol": {
                "n_fake": 20,
                "reference": {"id": reference, "split": "train"},
                "classes": "frequency",
                "scene_reader": {"id": "", "n": 20},
            },
            "treatment": {"samples": manifest_hash(folder)},
            "baselines": {
                **BASELINES,
                "clip_unrelated": {"image_other": 0.375, "text_other": 0.25},
                "scene_reader": {
                    "originals": {"colour": 0.984375, "colour_and_form": 0.96875},
                    "renders": {"colour": 1.0, "colour_and_form": 0.9921875},
                },
            },
            "formulas": {key: f"formula of {key} <&>" for key in of if key != "n"},
            "notes": ["few samples"],
        }
        write_json(where[1], card)


def without_generator() -> None:
    """Write samples, scores and curves of the generator as its stages leave them where it is of the kind `none`."""
    samples, curves = Path("samples/generator"), Path("curves/generator")
    shutil.rmtree(samples)
    shutil.rmtree(curves)
    samples.mkdir()
    reason = "`train_generator.kind` is none"
    write_manifest(samples, "samples", images=0, classes=[], sampler={}, reason=reason, files={})
    curves.mkdir()
    for folder in ("metrics", "cards"):
        write_json(Path(folder) / "generator.json", {})


def without_clip() -> None:
    """Write scores and curves of CLIP as `train_clip.source: none` leaves them."""
    shutil.rmtree("curves/clip")
    Path("curves/clip").mkdir()
    for folder in ("metrics", "cards"):
        write_json(Path(folder) / "clip.json", {})


def change(path: str, **changes: Any) -> None:
    """Change keys at the top of a JSON file, of a card in the parts that have them; None takes a key out."""
    value = copy.deepcopy(json.loads(Path(path).read_text()))
    for key, inner in changes.items():
        parts = [part for part in value.values() if isinstance(part, dict) and key in part]
        for of in parts if path.startswith("cards/") and parts else [value]:
            of[key] = inner
            if inner is None:
                del of[key]
    Path(path).write_text(json.dumps(value))


class Page(HTMLParser):
    """What a test asks a page: its tags, balanced or not, its <data> values with their text, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: list[tuple[float, str]] = []
        self.rows: dict[str, list[tuple[float, str]]] = {}
        self.faults: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._value: float | None = None
        self._row: str | None = None
        self._shown = ""
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, and what it opens."""
        named = dict(attrs)
        self.tags.append((tag, named))
        if len(named) < len(attrs):
            self.faults.append(f"<{tag}> names an attribute twice")
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self._row = named.get("data-score")
        if tag == "data":
            self._value, self._shown = float(str(named["value"])), ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself, as in SVG."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, which must be the last one opened."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes another tag, at {self.getpos()}")
        if tag == "tr":
            self._row = None
        if tag == "data" and self._value is not None:
            self.data.append((self._value, self._shown))
            if self._row:
                self.rows.setdefault(self._row, []).append((self._value, self._shown))
            self._value = None

    def handle_data(self, data: str) -> None:
        """Collect text, but not style sheets."""
        if self._open and self._open[-1] != "style":
            self.text += data
        self._shown += data
