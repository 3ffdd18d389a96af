"""The shape of a diffusion transformer: its `config.json`."""

from dataclasses import dataclass, field
from typing import Literal

from darkroom.artifacts.networks import LATER


@dataclass(frozen=True)
class DiTConfig:
    """The shape of a DiT.

    classes: the number of real classes; the null label of guidance is number `classes`.
    learned_variance: whether the output has a variance after the prediction, in the same number of channels.
    norm: `layer` (LayerNorm) or `rms` (RMSNorm: Zhang and Sennrich, 2019, arXiv 1910.07467), without weights.
    mlp: `gelu`, or `swiglu` (Shazeer, 2020, arXiv 2002.05202) with 2/3 of the hidden width: as many parameters.
    rope: turn queries and keys by a token's place (Su et al., 2021, arXiv 2104.09864), besides the fixed table.
    qk_norm: RMSNorm of queries and keys, with weights (Dehghani et al., 2023, arXiv 2302.05442).
    patch_bottleneck: numbers of a patch between two linear maps (Li and He, "JiT", 2025, arXiv 2511.13720); None: one.
    dropout: fraction of attention's and network's outputs that is zero while training.
    condition: besides the time: `class`, `none`, CLIP's embedding of an `image` or of a `text`, a text's embedding and
        `tokens`, to which each block attends; or a `caption` that this network embeds itself.
    embed_dim: length of the embedding; 0: none.
    text_shape: number and width of the tokens; None: none.
    augmented, value_residual, shared_adaln: always 0 and false: keys of the format that nothing reads.
    caption_shape: numbers of a caption's tokens and of known tokens; None: no captions.
    two_times: whether there is a second time, of `MeanFlow`.
    """

    channels: int
    size: int
    classes: int
    width: int
    depth: int
    heads: int
    patch: int
    mlp_ratio: float = 4.0
    learned_variance: bool = False
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "swiglu"] = "gelu"
    rope: bool = False
    qk_norm: bool = False
    value_residual: bool = False
    shared_adaln: bool = False
    patch_bottleneck: int | None = None
    dropout: float = 0.0
    condition: Literal["class", "none", "image", "text", "tokens", "caption"] = "class"
    embed_dim: int = 0
    text_shape: tuple[int, int] | None = None
    augmented: int = 0
    caption_shape: tuple[int, int] | None = None
    two_times: bool = field(default=False, metadata=LATER)

    @property
    def side(self) -> int:
        """Patches in a row, and rows; the network continues a latent with zeros to whole patches."""
        return -(-self.size // self.patch)
