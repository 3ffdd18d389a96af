"""The transformer: its size and start as in the paper, its blocks against diffusers', its file."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from darkroom.diffusion.flow import Flow
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT, TimeEmbedding
from darkroom.models.generators.dit.recipe import config_of
from darkroom.models.generators.dit.sample import dit_denoiser
from darkroom.models.generators.dit.settings import DiT as Settings
from darkroom.models.generators.dit.settings import Model
from darkroom.models.generators.embeddings import rotary, sincos_positions, turned

SMALL = DiTConfig(channels=4, size=8, classes=10, width=32, depth=2, heads=2, patch=2)


def filled(config=SMALL):
    """A DiT whose gates and head are not zero, so that every weight matters."""
    torch.manual_seed(0)
    model = DiT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


# Of facebookresearch/DiT's code: 1000 classes, latents 4 x 32 x 32, learned variance, fixed positions counted.
PUBLISHED = {
    ("S", 2): 32_963_360, ("S", 4): 32_945_024, ("S", 8): 33_148_160,
    ("B", 2): 130_512_416, ("L", 2): 458_102_816, ("XL", 2): 675_129_632,
}  # fmt: skip


@pytest.mark.parametrize(("size", "patch"), PUBLISHED)
def test_parameter_counts_are_the_papers(size, patch):
    settings = Settings(
        model={"size": size, "patch": patch},
        diffusion={"objective": "gaussian", "variance": "learned"},
        sampling={"solver": "ddim"},
    )
    with torch.device("meta"):
        model = DiT(config_of(settings, 4, 32, 1000))
    assert sum(p.numel() for p in model.parameters()) + model.positions.numel() == PUBLISHED[size, patch]


def test_a_size_is_a_name_or_numbers():
    assert Model(size="B").shape == {"depth": 12, "width": 768, "heads": 12}
    assert Model(size="B", depth=3).shape == {"depth": 3, "width": 768, "heads": 12}
    with pytest.raises(ValueError, match=r"heads \(5\) must divide width \(192\)"):
        Model(heads=5)
    with pytest.raises(ValueError, match=r"rope turns quarters of a head: width \(24\) / heads \(4\)"):
        Model(width=24, heads=4, rope=True)


PARTS = {
    "norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True,
    "patch_bottleneck": 6, "dropout": 0.2,
}  # fmt: skip


@pytest.mark.parametrize("part", [*PARTS, "all"])
def test_each_part_changes_the_network_and_begins_as_the_identity(part, tmp_path):
    """One switch alone, and all together: zero at the start, other answers when filled, the same after a file."""
    config = replace(SMALL, **(PARTS if part == "all" else {part: PARTS[part]}))
    x, t, y = torch.randn(2, 4, 8, 8), torch.tensor([10.0, 900.0]), torch.tensor([3, 10])
    torch.manual_seed(0)
    assert not DiT(config)(x, t, y).any()
    model = filled(config)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    shared = {name: value for name, value in filled().state_dict().items() if shapes.get(name) == value.shape}
    model.load_state_dict(shared, strict=False)
    answer = model.train()(x, t, y) if part == "dropout" else model(x, t, y)
    assert (answer - filled()(x, t, y)).abs().max() > 1e-4
    model.eval().save_pretrained(tmp_path)
    assert torch.equal(DiT.from_pretrained(tmp_path).eval()(x, t, y), model(x, t, y))
    model(x, t, y).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_swiglu_has_as_many_parameters():
    def count(**parts):
        with torch.device("meta"):
            return sum(p.numel() for p in DiT(replace(SMALL, width=384, heads=6, depth=12, **parts)).parameters())

    assert count(mlp="swiglu") == pytest.approx(count(), rel=0.002)


def test_a_patch_bottleneck_is_one_linear_map_of_low_rank():
    narrow = filled(replace(SMALL, patch_bottleneck=6))
    weights = narrow.state_dict()
    first, second = weights.pop("patches.weight"), weights.pop("widened.weight")
    weights["patches.bias"] = weights.pop("widened.bias")
    weights["patches.weight"] = (second.double() @ first.double().flatten(1)).float().view(32, 4, 2, 2)
    assert torch.linalg.matrix_rank(weights["patches.weight"].flatten(1)) == 6
    wide = DiT(SMALL).eval()
    wide.load_state_dict(weights)
    x, t, y = torch.randn(2, 4, 8, 8), torch.tensor([10.0, 900.0]), torch.tensor([3, 10])
    torch.testing.assert_close(narrow(x, t, y), wide(x, t, y), rtol=1e-4, atol=1e-5)


def test_rotary_positions_say_how_far_apart_tokens_are():
    """The product of a turned query and key is the same wherever the pair lies on the grid."""
    query, key = torch.randn(2, 16)
    angles = rotary(16, 5)
    assert angles.shape == (25, 8)
    product = turned(query.expand(25, 16), angles) @ turned(key.expand(25, 16), angles).T

    def at(row, column, other_row, other_column):
        return float(product[5 * row + column, 5 * other_row + other_column])

    assert at(0, 0, 2, 1) == pytest.approx(at(2, 3, 4, 4), abs=1e-4)
    assert abs(at(0, 0, 2, 1) - at(0, 0, 1, 2)) > 1e-3  # rows are not columns
    assert abs(at(0, 0, 2, 0) - at(0, 0, 0, 0)) > 1e-3 < abs(at(0, 0, 0, 2) - at(0, 0, 0, 0))  # both count
    assert at(1, 1, 1, 1) == pytest.approx(float((query * key).sum()), abs=1e-4)


def test_a_fresh_model_is_adaln_zero():
    torch.manual_seed(0)
    model = DiT(SMALL)
    x, condition = torch.randn(2, 16, 32), torch.randn(2, 32)
    assert all(torch.equal(block(x, condition), x) for block in model.blocks)
    assert not model(torch.randn(2, 4, 8, 8), torch.rand(2), torch.tensor([0, 10])).any()


def test_a_fresh_model_has_the_deviations_of_the_paper():
    """Linear layers and patches Xavier-uniform, the tables of time and labels normal with 0.02, biases 0."""
    torch.manual_seed(0)
    model = DiT(replace(SMALL, width=64, classes=1000))
    for weight in (model.labels.weight, model.time.mlp[0].weight, model.time.mlp[2].weight):
        assert (
            float(weight.detach().std()) == pytest.approx(0.02, rel=0.05) and float(weight.detach().abs().max()) > 0.05
        )
    for weight in (model.blocks[0].qkv.weight, model.blocks[1].out.weight, model.patches.weight.flatten(1)):
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.98 * bound < float(weight.detach().abs().max()) <= bound
        assert float(weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not any(parameter.any() for name, parameter in model.named_parameters() if name.endswith("bias"))


class Fixed(torch.nn.Module):
    """An embedding that is what it was given."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, *args, **kwargs):
        return self.condition


def test_a_block_is_that_of_diffusers():
    """Same weights into diffusers' BasicTransformerBlock with ada_norm_zero: the same output to 1e-5."""
    from diffusers.models.attention import BasicTransformerBlock

    ours = filled().blocks[0]
    condition, x = torch.randn(3, 32), torch.randn(3, 16, 32)
    theirs = BasicTransformerBlock(
        32, 2, 16, activation_fn="gelu-approximate", num_embeds_ada_norm=10, attention_bias=True,
        norm_elementwise_affine=False, norm_eps=1e-6, norm_type="ada_norm_zero",
    ).eval()  # fmt: skip
    weights, biases = ours.qkv.weight.chunk(3), ours.qkv.bias.chunk(3)
    unused = {"timestep": torch.zeros(3), "class_labels": torch.zeros(3, dtype=torch.long)}
    with torch.no_grad():
        for at, name in enumerate(("to_q", "to_k", "to_v")):
            getattr(theirs.attn1, name).weight.copy_(weights[at])
            getattr(theirs.attn1, name).bias.copy_(biases[at])
        theirs.attn1.to_out[0].load_state_dict(ours.out.state_dict())
        theirs.ff.net[0].proj.load_state_dict(ours.mlp[0].state_dict())
        theirs.ff.net[2].load_state_dict(ours.mlp[2].state_dict())
        theirs.norm1.linear.load_state_dict(ours.modulation[1].state_dict())
        theirs.norm1.emb = Fixed(condition)
        assert torch.allclose(ours(x, condition), theirs(x, **unused), atol=1e-5)


def published_positions(width, height, columns):
    """The table of DiT's published weights by its formula in float64, of a grid that need not be square.

    A position's number is row · columns + column. The first half of the width is of the column: DiT calls
    `meshgrid(grid_w, grid_h)`, whose first grid varies along a row, and concatenates the embeddings of both in order.
    """
    rates = 1 / 10_000 ** (np.arange(width // 4) / (width / 4))
    grids = np.meshgrid(np.arange(columns, dtype=np.float64), np.arange(height, dtype=np.float64))
    angles = [grid.reshape(-1, 1) * rates for grid in grids]
    return np.concatenate([part(each) for each in angles for part in (np.sin, np.cos)], axis=1)


def test_positions_are_those_of_the_published_weights():
    from diffusers.models.embeddings import get_2d_sincos_pos_embed

    expected = published_positions(32, 6, 6)
    found = sincos_positions(32, 6).double().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-7)  # of float32 below 1
    np.testing.assert_allclose(found, get_2d_sincos_pos_embed(32, 6, base_size=6, output_type="np"), atol=1e-7)
    # Halves that are swapped are the same for no position off the diagonal.
    assert (
        np.abs(np.roll(expected, 16, axis=1) - expected).max(axis=1).reshape(6, 6)[~np.eye(6, dtype=bool)].min() > 0.1
    )


def test_positions_leave_with_the_weights(tmp_path):
    """A network with another table samples as it was trained."""
    new, old = filled(), filled()
    old.positions.copy_(old.positions.roll(16, dims=1))
    x, t, y = torch.randn(2, 4, 8, 8), torch.rand(2), torch.tensor([1, 10])
    old.save_pretrained(tmp_path)
    assert torch.equal(DiT.from_pretrained(tmp_path)(x, t, y), old(x, t, y))
    assert not torch.equal(new(x, t, y), old(x, t, y))


def test_time_embedding_begins_with_cosines_of_the_timestep():
    embedding = TimeEmbedding(8)
    seen = []
    embedding.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    embedding(torch.tensor([250.0]))
    published = torch.exp(-math.log(10_000) * torch.arange(0, 128, dtype=torch.float32) / 128)
    assert torch.equal(embedding.rates, published)  # to the last bit, which outputs of published weights show
    rates = 10_000 ** (-torch.arange(128) / 128)
    assert torch.allclose(seen[0][0, :128], torch.cos(250 * rates), atol=1e-4)
    assert torch.allclose(seen[0][0, 128:], torch.sin(250 * rates), atol=1e-4)


def test_patches_stay_where_they_were():
    """Only the patch that changes in the input changes the token of that place: with attention off, locally."""
    model = filled()
    for block in model.blocks:
        torch.nn.init.zeros_(block.out.weight)
    x = torch.randn(1, 4, 8, 8)
    moved = x.clone()
    moved[:, :, 2:4, 6:8] += 1
    args = torch.tensor([500.0]), torch.tensor([3])
    changed = (model(x, *args) - model(moved, *args)).abs().sum(dim=(0, 1)) > 1e-6
    assert changed[2:4, 6:8].all() and changed.sum() == 4


def test_time_and_label_matter():
    model = filled()
    x = torch.randn(1, 4, 8, 8)
    outputs = [
        model(x, torch.tensor([t]), torch.tensor([y])) for t, y in ((100.0, 0), (900.0, 0), (100.0, 1), (100.0, 10))
    ]
    assert all((one - other).abs().max() > 1e-4 for i, one in enumerate(outputs) for other in outputs[:i])


def test_guidance_is_the_formula_on_all_channels():
    model = filled()
    x, t, y = torch.randn(3, 4, 8, 8), torch.rand(3), torch.tensor([0, 4, 9])
    with torch.no_grad():
        conditional, nothing = model(x, 1000 * t, y), model(x, 1000 * t, torch.full_like(y, 10))
        for scale in (0.0, 0.5, 1.0, 4.0):
            expected = nothing + scale * (conditional - nothing)
            found = dit_denoiser(model, Flow(), y, model.null_label, scale)(x, t, None).velocity
            assert torch.allclose(found, expected, atol=1e-5)
