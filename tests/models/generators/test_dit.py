"""The transformer: its size and start as in the paper, its blocks against diffusers', its file."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from darkroom.diffusion.flow import Flow
from darkroom.models.generators.dit.network import DiT, DiTConfig, TimeEmbedding, sincos_positions
from darkroom.models.generators.dit.sample import dit_denoiser

SMALL = DiTConfig(channels=4, size=8, classes=10, width=32, depth=2, heads=2, patch=2)


def filled(config=SMALL):
    """A DiT whose gates and head are not zero, so that every weight matters."""
    torch.manual_seed(0)
    model = DiT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize(("width", "depth", "heads", "millions"), [(384, 12, 6, 33.0), (768, 12, 12, 130.5)])
def test_parameter_counts_are_the_papers(width, depth, heads, millions):
    """DiT-S/2 and DiT-B/2 count their fixed positions, and predict 8 channels (learned variance): added here."""
    with torch.device("meta"):
        model = DiT(DiTConfig(4, 32, 1000, width, depth, heads, 2))
    surplus = 2 * 2 * 4 * (width + 1) + 16 * 16 * width
    assert (sum(p.numel() for p in model.parameters()) + surplus) / 1e6 == pytest.approx(millions, abs=0.05)


def test_a_fresh_model_is_adaln_zero():
    torch.manual_seed(0)
    model = DiT(SMALL)
    x, condition = torch.randn(2, 16, 32), torch.randn(2, 32)
    assert all(torch.equal(block(x, condition)[0], x) for block in model.blocks)
    assert not model(torch.randn(2, 4, 8, 8), torch.rand(2), torch.tensor([0, 10])).any()


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
        assert torch.allclose(ours(x, condition)[0], theirs(x, **unused), atol=1e-5)


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


def test_the_oracle_of_positions_tells_rows_from_columns():
    """On a grid of 2 x 5 the first half of the width counts to 4 along a row, and the second to 1 down a column."""
    table = published_positions(8, 2, 5).reshape(2, 5, 8)
    np.testing.assert_allclose(table[0, :, 0], np.sin(np.arange(5)))
    np.testing.assert_allclose(table[:, 0, 4], np.sin(np.arange(2)))
    assert (table[0, :, :4] == table[1, :, :4]).all() and (table[:, :1, 4:] == table[:, 1:2, 4:]).all()


def test_positions_leave_with_the_weights_and_old_weights_keep_theirs(tmp_path):
    """Weights of before the table was saved were trained with rows before columns, and sample as they were trained."""
    new, old = filled(), filled()
    old.positions.copy_(old.positions.roll(16, dims=1))
    x, t, y = torch.randn(2, 4, 8, 8), torch.rand(2), torch.tensor([1, 10])
    for model, kept in ((new, True), (old, False)):
        model.save_pretrained(tmp_path)
        if not kept:
            state = load_file(tmp_path / "model.safetensors")
            del state["positions"]
            save_file(state, tmp_path / "model.safetensors")
        again = DiT.from_pretrained(tmp_path)
        assert torch.equal(again(x, t, y), model(x, t, y))
        again.load_state_dict(
            {name: value for name, value in model.state_dict().items() if kept or name != "positions"}
        )
        assert torch.equal(again.positions, model.positions)
    assert not torch.equal(new(x, t, y), old(x, t, y))


def test_time_embedding_begins_with_cosines_of_the_timestep():
    embedding = TimeEmbedding(8)
    seen = []
    embedding.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    embedding(torch.tensor([250.0]))
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


def test_weights_leave_and_return(tmp_path):
    model = filled()
    model.save_pretrained(tmp_path)
    again = DiT.from_pretrained(tmp_path)
    x, t, y = torch.randn(2, 4, 8, 8), torch.rand(2), torch.tensor([1, 10])
    assert torch.equal(model(x, t, y), again(x, t, y)) and not again.training


def test_guidance_is_the_formula_on_all_channels():
    model = filled()
    x, t, y = torch.randn(3, 4, 8, 8), torch.rand(3), torch.tensor([0, 4, 9])
    with torch.no_grad():
        conditional, nothing = model(x, 1000 * t, y), model(x, 1000 * t, torch.full_like(y, 10))
        for scale in (0.0, 0.5, 1.0, 4.0):
            expected = nothing + scale * (conditional - nothing)
            found = dit_denoiser(model, Flow(), y, model.null_label, scale)(x, t, None).velocity
            assert torch.allclose(found, expected, atol=1e-5)
