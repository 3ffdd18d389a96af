"""Perceptual distances against formulas in float64 and torchmetrics' LPIPS; VGG's weights are random, in a file."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, write_manifest
from darkroom.data.colours import composited
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.teacher import Teacher
from darkroom.models.tokenizers.perceptual import LevelDistance, _bins, load_perceptual, to_rgb, untrained
from darkroom.models.tokenizers.protocol import to_network


def images(size=32, channels=3, count=2, seed=0):
    pair = torch.rand(2, count, channels, size, size, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return pair[0], pair[1]


@pytest.fixture(scope="module")
def vgg(tmp_path_factory):
    """VGG16's convolutions and classifier with random weights, and a file in the format that torchvision downloads.

    The classifier's matrices hold one vector, shifted by one from row to row: the file is small.
    """
    from torchvision.models.vgg import cfgs, make_layers

    torch.manual_seed(0)
    features = make_layers(cfgs["D"], batch_norm=False).eval()
    for layer in features:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    vectors = [torch.randn(4096 + width) * width**-0.5 for width in (25088, 4096)]
    state = {f"features.{name}": value for name, value in features.state_dict().items()}
    for number, vector in zip((0, 3), vectors, strict=True):
        state[f"classifier.{number}.weight"] = vector.as_strided((4096, len(vector) - 4096), (1, 1))
        state[f"classifier.{number}.bias"] = torch.randn(4096)
    path = tmp_path_factory.mktemp("weights") / "vgg16.pth"
    torch.save(state, path)
    return features, vectors, state, path


def make_teacher():
    torch.manual_seed(0)
    return Teacher(in_channels=3, classes=4, channels=[8, 12], layers=2).eval()


def test_the_distance_in_the_teacher_is_its_formula_in_float64():
    teacher, (a, b) = make_teacher(), images(16)
    found = LevelDistance(teacher).frozen()(a, b)
    exact, expected = make_teacher().double(), torch.zeros(2, dtype=torch.float64)
    weights = exact.state_dict()
    for level, (x, y) in enumerate(zip(exact.levels(a.double()), exact.levels(b.double()), strict=True)):
        length = sum(weights[f"stages.{level}.{4 + (level > 0)}.{name}"].pow(2).sum() for name in ("weight", "bias"))
        x, y = (v / (v.norm(dim=1, keepdim=True).pow(2) + 0.01 * length).sqrt() for v in (x, y))
        expected += (x - y).pow(2).sum(dim=1).mean(dim=(1, 2))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


def test_what_rounding_changes_of_the_images_changes_the_gradient_as_little():
    """1e-7 of the images moves the gradient by 1e-4 of itself at most: of noise, and where there is next to nothing.

    At most 2.5e-5 in these 60 pairs; with the ε of the published LPIPS 0.05. In float64 it is the distance's own
    condition, on every processor, and in float32 what its rounding adds.
    """

    def gradient(of, x):
        x = x.float().requires_grad_()
        of(noise.float(), x).sum().backward()
        return x.grad

    for seed in range(5):
        torch.manual_seed(seed)
        distance = LevelDistance(Teacher(in_channels=3, classes=2, channels=[4, 4], layers=1)).frozen()
        noise, other = (torch.rand(2, 4, 3, 16, 16, dtype=torch.float64) * 2 - 1).unbind()
        black = torch.full_like(other, -1)
        black[:, :, 5:9, 6:10] = other[:, :, 5:9, 6:10]
        for name, x in {"noise": other, "black": black, "grey": 0.3 + 0.01 * other, "flat": 0 * other + 0.3}.items():
            nudge = 1 + 1e-7 * (2 * torch.randint(0, 2, x.shape) - 1)
            one, two = gradient(distance, x), gradient(distance, x * nudge)
            assert torch.dist(one, two) < 1e-4 * one.norm(), (seed, name)


def test_the_distance_knows_no_unit_of_the_features():
    """A training may leave them at any scale, and what is small is small beside it."""
    teacher, (a, b) = make_teacher(), images(16)
    expected = LevelDistance(teacher).frozen()(a, b)
    with torch.no_grad():
        for stage in teacher.stages:
            for parameter in stage[-2].parameters():
                parameter.mul_(1000)
    torch.testing.assert_close(LevelDistance(teacher).frozen()(a, b), expected, rtol=1e-3, atol=0)


def test_an_image_has_the_same_distance_in_any_batch():
    distance, (a, b) = LevelDistance(make_teacher()).frozen(), images(16, count=5)
    torch.testing.assert_close(distance(a, b)[2:3], distance(a[2:3], b[2:3]), rtol=1e-5, atol=0)


def test_lpips_is_that_of_torchmetrics_with_the_same_weights(vgg):
    from torchmetrics.functional.image.lpips import _LPIPS

    features, _, _, path = vgg
    theirs = _LPIPS(pretrained=True, net="vgg", pnet_rand=True, use_dropout=True)
    slices = [getattr(theirs.net, f"slice{number}") for number in range(1, 6)]
    for part in slices:
        for name, layer in part.named_children():
            layer.load_state_dict(features[int(name)].state_dict())
    a, b = images()
    ours = load_perceptual("lpips", path, (3, 32, 32))
    torch.testing.assert_close(ours(a, b), theirs(a, b).flatten(), rtol=1e-5, atol=0)


def test_lpips_is_the_published_formula_in_float64(vgg):
    """f / (|f| + 1e-10), as the authors' first code has it: nothing of the teacher's ε is in it."""
    a, b = images()
    ours = load_perceptual("lpips", vgg[3], (3, 32, 32))
    exact, expected = copy.deepcopy(ours).double(), torch.zeros(2, dtype=torch.float64)
    for w, x, y in zip(exact.linear, exact.levels(a.double()), exact.levels(b.double()), strict=True):
        x, y = (value / (value.norm(dim=1, keepdim=True) + 1e-10) for value in (x, y))
        expected += (w * (x - y).pow(2)).sum(dim=1).mean(dim=(1, 2))
    torch.testing.assert_close(ours(a, b).double(), expected, rtol=1e-5, atol=0)


def test_vgg16_compares_4096_features_of_images_from_0_to_1(vgg):
    features, vectors, state, path = vgg
    a, b = images(64)
    found = []
    for x in (a, b):
        with torch.no_grad():
            maps = copy.deepcopy(features).double()((x.double() + 1) / 2)
        x = functional.adaptive_avg_pool2d(maps, 7).flatten(1)
        for number, vector in zip((0, 3), vectors, strict=True):  # a row is a window of the vector: a correlation
            kernel = vector.double()[None, None, :-1]
            x = functional.conv1d(kernel, x[:, None]).squeeze(0) + state[f"classifier.{number}.bias"].double()
            x = x.clamp(min=0)
        found.append(x)
    assert found[0].shape == (2, 4096)
    expected = (found[0] - found[1]).pow(2).sum(dim=1) / 4096
    torch.testing.assert_close(load_perceptual("vgg16", path, (3, 64, 64))(a, b).double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (10, 16)])
def test_vgg16_pools_as_adaptive_pooling_does(size):
    maps = torch.rand(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, columns = (_bins(each, maps) for each in size)
    expected = functional.adaptive_avg_pool2d(maps, 7)
    torch.testing.assert_close(torch.einsum("ih,nchw,jw->ncij", rows, maps, columns), expected)


def test_gradients_reach_the_images_and_nothing_else():
    distance, (a, b) = LevelDistance(make_teacher()).frozen(), images(16)
    distance.train()
    b.requires_grad_()
    distance(a, b).sum().backward()
    assert b.grad.abs().sum() > 0 and a.grad is None
    assert not distance.training and not distance.network.training
    assert all(p.grad is None and not p.requires_grad for p in distance.parameters())


def test_equal_images_have_the_distance_0_and_a_gradient_of_numbers():
    distance, (a, _) = LevelDistance(make_teacher()).frozen(), images(16)
    b = a.clone().requires_grad_()
    distance(a, b).sum().backward()
    assert distance(a, a).tolist() == [0, 0] and b.grad.isfinite().all()


def test_grey_and_transparent_images_become_rgb():
    grey, _ = images(4, channels=1)
    assert torch.equal(to_rgb(grey), torch.cat([grey] * 3, dim=1))
    clear = torch.randint(0, 256, (2, 4, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(to_rgb(to_network(clear)), to_network(composited(clear)), rtol=0, atol=0.51 / 127.5)


def write_teacher(folder, kind="teacher"):
    folder.mkdir()
    make_teacher().save_pretrained(folder)
    write_manifest(folder, kind, image_shape=[3, 16, 16], files={})


def test_a_teacher_is_read_as_it_was_written(tmp_path):
    write_teacher(tmp_path / "teacher")
    a, b = images(16)
    found = load_perceptual("teacher", tmp_path / "teacher", (3, 16, 16))(a, b)
    assert torch.equal(found, LevelDistance(make_teacher()).frozen()(a, b))


def test_the_judge_is_no_teacher(tmp_path):
    write_teacher(tmp_path / "extractor", kind="extractor")
    with pytest.raises(ArtifactError, match=r"'extractor'.*'teacher'.*is needed"):
        load_perceptual("teacher", tmp_path / "extractor", (3, 16, 16))


@pytest.mark.parametrize("name", ["none", "nothing"])
def test_without_a_teacher_there_is_one_sentence(tmp_path, name):
    (tmp_path / "none").touch()
    with pytest.raises(ArtifactError, match=r"`train_tokenizer\.teacher`.*holds no teacher"):
        load_perceptual("teacher", tmp_path / name, (3, 16, 16))


def test_a_teacher_of_other_images_is_refused(tmp_path):
    write_teacher(tmp_path / "teacher")
    with pytest.raises(ArtifactError, match=r"\[3, 16, 16\], but these are \[3, 32, 32\]"):
        load_perceptual("teacher", tmp_path / "teacher", (3, 32, 32))


def test_a_missing_file_of_weights_is_told(tmp_path):
    with pytest.raises(DarkroomError, match=r"`train_tokenizer\.teacher`.*vgg\.pth.*data/none to download"):
        load_perceptual("lpips", tmp_path / "vgg.pth", (3, 32, 32))


def test_a_file_of_another_network_is_told(tmp_path):
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    for name in ("other", "text"):
        with pytest.raises(DarkroomError, match="does not hold torchvision's weights of VGG16"):
            load_perceptual("vgg16", tmp_path / f"{name}.pth", (3, 32, 32))


def test_building_one_draws_nothing():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    untrained("lpips")
    assert torch.equal(torch.rand(2), expected)
