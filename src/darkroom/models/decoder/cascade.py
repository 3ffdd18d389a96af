"""The cascade of U-Nets: from embeddings to images, each U-Net enlarging what the last one made."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.artifacts.models import DECODER, DECODER_FOLDER
from darkroom.diffusion.prediction import Prediction
from darkroom.models.decoder.member import Asked, Member, Sampling, generate
from darkroom.models.decoder.unet import DecoderUNet


class Cascade:
    """The trained U-Nets, from the smallest images to the largest."""

    def __init__(self, members: Sequence[Member], identity: str) -> None:
        self.members, self.identity = list(members), identity

    @classmethod
    def open(cls, names: Sequence[str], weights: Literal["ema", "raw"], root: Path = DECODER_FOLDER) -> "Cascade":
        """Open the U-Nets of some names; those that were not trained are left out.

        Raises:
            ArtifactError: none is trained, two do not fit each other, or were trained with another CLIP or
                tokenizer, or on embeddings normalised otherwise.
        """
        members, hashes = [], []
        for name in names:
            hashes.append(manifest_hash(root / name) if (root / name / "manifest.json").is_file() else "")
            if not read_manifest(root / name, DECODER)["trained"]:
                continue
            facts = open_artifact(root / name, DECODER)
            network = DecoderUNet.from_pretrained(root / name if weights == "ema" else root / name / "raw")
            bounded = facts["tokenizer"] is None
            prediction = Prediction.of(steps=facts["timesteps"], bounded=bounded, **facts["prediction"])
            members.append(Member(name, network, prediction, facts))
        members.sort(key=lambda member: member.size)
        if not members:
            raise ArtifactError(f"no U-Net in {root} is trained: set `trained` to true for one of them.")
        for below, above in pairwise(members):
            if above.facts["low_size"] is None:
                raise ArtifactError(
                    f"the U-Nets `{below.name}` and `{above.name}` both begin with noise alone: give the larger one a "
                    "`low_size` in `train_decoder.unets`, or set `trained` to false for one of them."
                )
            if above.facts["low_size"] != below.size:
                raise ArtifactError(
                    f"the U-Net `{above.name}` enlarges images of {above.facts['low_size']} pixels, and `{below.name}` "
                    f"makes some of {below.size}: set `train_decoder.unets.{above.name}.low_size` to {below.size}."
                )
        for key, what in (("clip", "CLIP"), ("tokenizer", "tokenizer")):
            found = {member.facts[key] for member in members if member.facts[key] is not None}
            if len(found) > 1:
                raise ArtifactError(f"the U-Nets in {root} were trained with different {what}s: train them again.")
        if len({member.facts["normalised"] for member in members if member.facts["clip"] is not None}) > 1:
            raise ArtifactError(
                f"of the U-Nets in {root} some were trained on embeddings of length 1, as those always are that are "
                "computed while training, and some were not: set `embed_clip.normalise` to true, and train them again."
            )
        return cls(members, " ".join(hashes))

    @property
    def clip(self) -> str | None:
        """The identity of the CLIP whose embeddings the U-Nets are told; None: they are told none."""
        return next((member.facts["clip"] for member in self.members if member.facts["clip"] is not None), None)

    @property
    def normalised(self) -> bool:
        """Whether the embeddings that the U-Nets are told have length 1."""
        return all(member.facts["normalised"] for member in self.members if member.facts["clip"] is not None)

    def told(self, name: Literal["image", "encoding"]) -> bool:
        """Return whether a U-Net is told the image embedding, or the text encoding."""
        configs = [member.network.config for member in self.members]
        return any(each.embed_dim if name == "image" else each.text_shape for each in configs)

    def require_clip(self, clip: str, where: str, normalised: bool | None = None) -> None:
        """Check that the U-Nets are told what a CLIP says.

        Args:
            clip: its identity.
            where: where it is, or what was made by it, for the message.
            normalised: whether the embeddings from there have length 1; None: they will have, where they must.

        Raises:
            ArtifactError: no U-Net is told any embedding, or those of another CLIP, or of other lengths.
        """
        if self.clip is None:
            raise ArtifactError(
                "no U-Net in models/decoder is told an embedding or a text, so none can be asked for: set "
                "`model.image_to_time`, `image_map` or `image_tokens` in `train_decoder.unets` for one of them."
            )
        if self.clip != clip:
            raise ArtifactError(
                f"models/decoder was trained with another CLIP than that of {where}: train it again "
                "(`dvc repro train_decoder`)."
            )
        if normalised is not None and normalised != self.normalised:
            ours, theirs = ("of length 1" if each else "of their own lengths" for each in (self.normalised, normalised))
            raise ArtifactError(
                f"models/decoder was trained on embeddings {ours}, and those of {where} are {theirs}: set "
                "`embed_clip.normalise` as it was, or train again (`dvc repro train_decoder train_prior`)."
            )

    @property
    def low_size(self) -> int | None:
        """Pixels of the images that the first trained U-Net enlarges; None: it begins with noise alone."""
        return self.members[0].facts["low_size"]

    def to(self, device: torch.device) -> "Cascade":
        """Move the networks, and return this object."""
        for member in self.members:
            member.network.to(device)
        return self

    def generate(self, asked: Asked, sampling: Mapping[str, Sampling], seed: int, device: torch.device) -> Tensor:
        """Return x_0 of the last U-Net, float32 (N, C, S, S); pixels are in [-1, 1].

        Args:
            asked: what is wanted.
            sampling: how, for each U-Net by name.
            seed: of all noise.
            device: where the networks are.
        """
        x = asked.low
        for member in self.members:
            x = generate(member, sampling[member.name], asked, x, seed, device)
        assert x is not None  # there is a member
        return x
