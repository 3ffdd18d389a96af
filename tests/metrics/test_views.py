"""The second statistic of a reference, that of sFID's features, is carried as the first: weighted, kept, held out."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from darkroom.metrics import reference as held_out
from darkroom.metrics.baselines import noise_floor
from darkroom.metrics.batches import Views
from darkroom.metrics.inception_score import inception_scores
from darkroom.metrics.measure import Samples, distances, measure
from darkroom.metrics.reference import Reference, build_reference, held_out_reference, with_held_out
from darkroom.metrics.sample_scores import held_out_names, score_names
from darkroom.metrics.table import FEATURE_METRICS, scores

NAMES = ("a", "b", "c")


def draw(seed: int, labels: torch.Tensor) -> Views:
    """Return features of images whose classes lie apart, more in the second kind."""
    source = torch.Generator().manual_seed(seed)
    pool, spatial, logits = (torch.randn(len(labels), width, generator=source) for width in (6, 5, 4))
    apart = torch.nn.functional.one_hot(labels, 5).float()
    return Views(pool + apart.repeat(1, 2)[:, :6], spatial + 3 * apart, logits + 2 * apart[:, :4])


def repeated(*counts: int) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


LABELS, UNSEEN = repeated(200, 60, 20), repeated(80, 25, 12)


def batches(seen: Views) -> list[Views]:
    return [seen.take(rows.tolist()) for rows in torch.arange(len(seen)).split(17)]


def build(kid_images: int = 1000) -> Reference:
    seen = draw(0, LABELS)
    found = build_reference("inception", "ab" * 32, batches(seen), len(seen), kid_images, LABELS, NAMES)
    return with_held_out(found, draw(1, UNSEEN), UNSEEN, kid_images)


def alone(part: str, kid_images: int = 1000) -> Reference:
    """Return the reference of one kind of features by itself."""
    seen = getattr(draw(0, LABELS), part)
    found = build_reference("inception", "", seen.split(40), len(seen), kid_images, LABELS, NAMES)
    return replace(found, unseen=getattr(draw(1, UNSEEN), part), unseen_labels=UNSEEN)


@pytest.mark.parametrize("kid_images", [1000, 60])
@pytest.mark.parametrize("distribution", ["frequency", "balanced", {"a": 3, "c": 9}])
def test_both_statistics_are_weighted_alike(distribution: str | dict[str, int], kid_images: int) -> None:
    whole = build(kid_images).matched(distribution)
    assert whole.spatial is not None and whole.spatial.kid_within is None
    for part, of in (("pool", whole), ("spatial", whole.spatial)):
        expected = alone(part, kid_images).matched(distribution)
        for name in ("mean", "cov", "root"):
            torch.testing.assert_close(getattr(of, name), getattr(expected, name), rtol=1e-9, atol=1e-11)
        assert of.n == expected.n and torch.equal(of.kid_features, expected.kid_features)
    wanted = repeated(30, 0, 30)
    found = distances(draw(2, wanted), whole, 5, wanted)
    for part, name in (("pool", "fd"), ("spatial", "sfid")):
        reference = alone(part, kid_images).matched(distribution)
        expected_scores = distances(getattr(draw(2, wanted), part), reference, 5, wanted)
        for end in ("", "_debiased", "_se"):
            assert found[name + end] == pytest.approx(expected_scores["fd" + end], rel=1e-9)
    assert "kid" in found and "skid" not in found


def test_both_are_stored_and_read(tmp_path: Path) -> None:
    build().save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "inception.safetensors",
        "inception_spatial.safetensors",
    ]
    again = Reference.load(tmp_path, "inception", "ab" * 32)
    assert again.spatial is not None and again.unseen_views is not None and again.unseen_views.spatial is not None
    assert torch.equal(again.spatial.cov, build().spatial.cov) and again.spatial.kid_within is None  # type: ignore[union-attr]
    assert torch.equal(again.unseen_logits, draw(1, UNSEEN).logits)  # type: ignore[arg-type]
    wanted = repeated(20, 20, 10)
    one, other = (noise_floor(each, each.matched("balanced"), "balanced", wanted, 5) for each in (build(), again))
    assert one == other and {"sfid", "sfid_se", "inception_score", "inception_score_se"} < one.keys()


def test_held_out_images_are_a_reference_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "ENOUGH", 2)
    found = held_out_reference(build())
    assert found is not None and found.spatial is not None and found.unseen_logits is None
    torch.testing.assert_close(found.spatial.mean, draw(1, UNSEEN).spatial.double().mean(0))  # type: ignore[union-attr]
    assert torch.equal(found.unseen_views.spatial, draw(0, LABELS).spatial)  # type: ignore[union-attr,arg-type]
    names = score_names("inception", held_out_names(distances(draw(2, UNSEEN), found, 5, UNSEEN)))
    assert {"sfid_held_out", "sfid_held_out_debiased", "fid_held_out", "inception_kid_held_out"} < names.keys()
    assert {name for name in names if not name.endswith("_se")} < scores().keys()


def test_scores_of_one_extractor_alone() -> None:
    seen = draw(2, UNSEEN)

    def alone_in(extractor: str, seen: Views, reference: Reference) -> dict[str, float]:
        found = measure(Samples(extractor, seen, 5), reference, FEATURE_METRICS).scores
        return {name: value for name, value in found.items() if name not in distances(seen, reference, 5)}

    assert alone_in("inception", seen, build()) == inception_scores(seen.logits, 5)  # type: ignore[arg-type]
    assert alone_in("dinov2", Views(seen.pool), alone("pool")) == {}
    assert set(alone_in("clip", Views(seen.pool), alone("pool"))) == {"cmmd", "cmmd_se"}


@pytest.mark.parametrize(("most", "kept"), [(200, 200), (5000, 4048)])
def test_held_out_images_that_are_kept_are_as_frequent_as_in_the_split(most: int, kept: int) -> None:
    """A floor by frequency takes any of them: more of rare classes would bias it."""
    unseen = repeated(4000, 40, 8)
    found = with_held_out(build(), draw(1, unseen), unseen, most)
    assert found.unseen_labels is not None and len(found.unseen_labels) == kept
