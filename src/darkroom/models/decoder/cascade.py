"""The cascade of U-Nets: from embeddings to images, each U-Net enlarges the output of the previous one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.artifacts.models import DECODER, DECODER_FOLDER
from darkroom.data.images import ImageSpec
from darkroom.device import fill_batch
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.decoder.network import DecoderUNet
from darkroom.models.decoder.sample import CascadeStage, SampleRequest, downsampled, sample_stage, upsampled
from darkroom.models.decoder.settings import UNetSampling
from darkroom.models.tokenizers.protocol import Tokenizer, load_tokenizer, padded, to_images, to_network

TOKENIZER = Path("models/tokenizer")


class Cascade:
    """The trained U-Nets, from the smallest images to the largest."""

    def __init__(self, stages: Sequence[CascadeStage], fingerprint: str) -> None:
        self.stages, self.fingerprint = list(stages), fingerprint

    @classmethod
    def open(cls, names: Sequence[str], weights: Literal["ema", "raw"], root: Path = DECODER_FOLDER) -> "Cascade":
        """Open U-Nets by name, without those that were not trained.

        Raises:
            ArtifactError: none is trained, two do not fit each other, or they were trained with different CLIPs,
                tokenizers, or normalisations of embeddings.
        """
        hashes = [manifest_hash(root / name) if (root / name / "manifest.json").is_file() else "" for name in names]
        manifests = {name: read_manifest(root / name, DECODER) for name in names}
        stages: list[CascadeStage] = []
        for name in (name for name, manifest in manifests.items() if manifest["trained"]):
            metadata = open_artifact(root / name, DECODER)
            network = DecoderUNet.from_pretrained(root / name if weights == "ema" else root / name / "raw")
            objective, bounded = stored_objective(metadata, "gaussian"), metadata["tokenizer"] is None
            stages.append(CascadeStage(name, network, objective, bounded, metadata))
        stages.sort(key=lambda stage: stage.size)
        if not stages:
            raise ArtifactError(f"no U-Net in {root} is trained: set `frozen` to false for at least one.")
        for below, above in pairwise(stages):
            if above.metadata["low_size"] != below.size:
                raise ArtifactError(
                    f"the U-Net `{above.name}` has low_size {above.metadata['low_size']}, but `{below.name}` makes "
                    f"images of {below.size} pixels: set `train_decoder.unets.{above.name}.low_size` to {below.size}."
                )
        for key, noun in (("clip", "CLIP"), ("tokenizer", "tokenizer")):
            fingerprints = {stage.metadata[key] for stage in stages if stage.metadata[key] is not None}
            if len(fingerprints) > 1:
                raise ArtifactError(f"the U-Nets in {root} were trained with different {noun}s: train them again.")
        if len({stage.metadata["normalised"] for stage in stages if stage.metadata["clip"] is not None}) > 1:
            raise ArtifactError(
                f"only some of the U-Nets in {root} were trained on embeddings of length 1, which embeddings computed "
                "while training always have: set `embed_clip.normalise` to true, and train them again."
            )
        return cls(stages, " ".join(hashes))

    @property
    def clip(self) -> str | None:
        """The identity of the CLIP whose embeddings the U-Nets are conditioned on, or None."""
        return next((stage.metadata["clip"] for stage in self.stages if stage.metadata["clip"] is not None), None)

    @property
    def normalised(self) -> bool:
        """Whether the embeddings that the U-Nets are conditioned on have length 1."""
        return all(stage.metadata["normalised"] for stage in self.stages if stage.metadata["clip"] is not None)

    def conditioned_on(self, name: Literal["image", "encoding"]) -> bool:
        """Return whether a U-Net is conditioned on the image embedding, or on the text encoding."""
        configs = [stage.network.config for stage in self.stages]
        return any(each.embed_dim if name == "image" else each.text_shape for each in configs)

    def require_clip(self, clip: str, where: str, normalised: bool | None = None) -> None:
        """Check that the U-Nets are conditioned on embeddings of a CLIP.

        Args:
            clip: its identity.
            where: its folder, or an artifact made with it, for the message.
            normalised: whether the embeddings from there have length 1; None: they will if required.

        Raises:
            ArtifactError: no U-Net is conditioned on any embedding, or on those of another CLIP, or of other lengths.
        """
        if self.clip is None:
            raise ArtifactError(
                "no U-Net in models/decoder is conditioned on an embedding or a text, so it accepts none: set "
                "`model.image_to_time`, `image_map` or `image_tokens` in `train_decoder.unets` for one of them."
            )
        if self.clip != clip:
            raise ArtifactError(
                f"models/decoder was trained with another CLIP than {where}: run `dvc repro train_decoder`."
            )
        if normalised is not None and normalised != self.normalised:
            ours, theirs = ("of length 1" if each else "of their own lengths" for each in (self.normalised, normalised))
            raise ArtifactError(
                f"models/decoder was trained on embeddings {ours}, but those of {where} are {theirs}: restore "
                "`embed_clip.normalise`, or train again (`dvc repro train_decoder train_prior`)."
            )

    @property
    def low_size(self) -> int | None:
        """Pixels of the images that the first trained U-Net enlarges; None: it starts from noise."""
        return self.stages[0].metadata["low_size"]

    @property
    def images_seen(self) -> int | None:
        """Images that the first U-Net was trained on; None: not known."""
        return self.stages[0].metadata.get("images_seen")

    def to(self, device: torch.device) -> "Cascade":
        """Move the networks, and return this object."""
        for stage in self.stages:
            stage.network.to(device)
        return self

    def sample(
        self, request: SampleRequest, sampling: Mapping[str, UNetSampling], seed: int, device: torch.device
    ) -> Tensor:
        """Return x_0 of the last U-Net, float32 (N, C, S, S); pixels are in [-1, 1].

        Args:
            request: the images.
            sampling: how each U-Net is sampled, by name.
            seed: seed of all noise.
            device: the device of the networks.
        """
        x = request.low
        for stage in self.stages:
            x = sample_stage(stage, sampling[stage.name], request, x, seed, device)
        assert x is not None  # there is a stage
        return x


class Decoder:
    """A cascade whose outputs are converted to images of the data's size."""

    def __init__(self, cascade: Cascade, sampling: Mapping[str, UNetSampling], seed: int, batch: int) -> None:
        """Set the cascade, on its device, and the sampling settings of each U-Net, by name.

        The last batch is padded to `batch` images, so an image's bits do not depend on the number of requested images.
        """
        self.cascade, self.sampling, self.seed, self.batch = cascade, dict(sampling), seed, batch
        self.metadata: Mapping[str, Any] = cascade.stages[-1].metadata
        self.device = next(cascade.stages[0].network.parameters()).device
        self.image_shape: tuple[int, int, int] = ImageSpec.of(self.metadata).shape
        self._tokenizer: Tokenizer | None = None
        if self.metadata["tokenizer"] is not None:
            self._tokenizer, fingerprint = load_tokenizer(TOKENIZER, self.image_shape)
            if fingerprint != self.metadata["tokenizer"]:
                raise ArtifactError(
                    f"the decoder was trained with another tokenizer than {TOKENIZER}: run `dvc repro train_decoder`."
                )
            self._tokenizer.to(self.device)
            self._scaler = LatentScaler(self.metadata["latent_mean"], self.metadata["latent_std"])

    def images(self, request: SampleRequest) -> Iterator[Tensor]:
        """Yield the requested images in batches, uint8 (n, C, H, W), n at most `batch`."""
        count = len(request.numbers)
        for start in range(0, count, self.batch):
            stop = min(start + self.batch, count)
            x0 = self.cascade.sample(_rows(request, start, stop, self.batch), self.sampling, self.seed, self.device)
            yield self._pixels(x0)[: stop - start].cpu()

    def space(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as x_0 at the size of the last U-Net, for in-painting."""
        images = images.to(self.device)
        if self._tokenizer is not None:
            return self._scaler(self._tokenizer.encode(images)[0].float())
        return downsampled(to_network(images), self.cascade.stages[-1].size)

    def low(self, images: Tensor) -> Tensor | None:
        """Return the low-resolution input of the first trained U-Net from real images; None: it starts from noise."""
        if (size := self.cascade.low_size) is None:
            return None
        method = self.cascade.stages[0].metadata["low_downsample"]
        return downsampled(to_network(images.to(self.device)), size, method)

    def _pixels(self, x0: Tensor) -> Tensor:
        if self._tokenizer is not None:
            return padded(self._tokenizer.decode, self._scaler.invert(x0), self.batch, self.device)
        side = self.image_shape[-1]
        # A cascade whose last U-Net is not trained ends with smaller images.
        return to_images(x0 if x0.shape[-1] == side else upsampled(x0, side))


def _rows(request: SampleRequest, start: int, stop: int, batch: int) -> SampleRequest:
    """Return some of the requested images, padded with the first of them to a whole batch."""
    numbers = fill_batch(torch.tensor(request.numbers[start:stop]), batch).tolist()
    given = {name: getattr(request, name) for name in ("image", "text", "low", "known", "mask")}
    cut: dict[str, Any] = {
        name: fill_batch(values[start:stop], batch) for name, values in given.items() if values is not None
    }
    return replace(request, numbers=numbers, **cut)
