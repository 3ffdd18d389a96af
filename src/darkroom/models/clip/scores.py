"""Images with captions as CLIP's tokens, prompts of classes, and the scores of a CLIP: zero-shot and retrieval."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.data.reader import ImageShards
from darkroom.data.streaming import StreamingOrder
from darkroom.errors import DarkroomError
from darkroom.metrics.retrieval import class_embeddings, recalls, zero_shot
from darkroom.models.clip.network import Contrastive, to_tensor, tokens_of
from darkroom.models.tokenizers.protocol import padded
from darkroom.terminal.terminal import with_progress
from darkroom.training.data import Images, Positions
from darkroom.training.recipe import Gather

AHEAD = 100_000  # captions that are tokenised before the training, so that too long ones fail at once


class CaptionedImages(Images):
    """Stored images that have a caption: `images` uint8 (N, C, H, W), `tokens` int64 (N, L), `captions` int64 (N,).

    Images without a caption are excluded. `captions` are indices into `texts`, equal for equal captions.

    texts: the distinct captions.
    rows: the row of each image in the shards, (N,).
    numbers: the index of its caption in `texts`, (N,).

    Raises:
        DarkroomError: a caption is too long and truncation is off; the message names the image.
    """

    def __init__(self, shards: ImageShards, context: int, truncate: bool, seed: int = 0) -> None:
        super().__init__(shards, seed)
        self.context, self.truncate = context, truncate
        column = shards.caption_column.combine_chunks()
        self.rows: NDArray[np.int64] = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        encoded = column.drop_null().dictionary_encode()
        self.numbers: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.texts: pa.Array = encoded.dictionary
        if self._streaming is not None:
            edges = np.searchsorted(self.rows, [shard.first for shard in shards.shards] + [len(shards)])
            self._streaming = StreamingOrder(np.diff(edges).tolist())
        self._tokens: dict[int, NDArray[np.uint16]] = {}
        self._tokenise(range(min(AHEAD, len(self.texts))))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the images, tokens and caption indices of some rows."""
        stored = self.rows[list(rows)].tolist()
        numbers = self.numbers[list(rows)]
        return {**super().__getitems__(stored, positions), "tokens": self.tokens(numbers.tolist()), "captions": numbers}

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, for messages."""
        return self.shards.keys_of(self.rows[list(rows)].tolist())

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,)."""
        return super().groups[self.rows]

    def labels(self) -> list[str | None]:
        """Return the label of each row."""
        return self.shards.label_column.take(pa.array(self.rows)).to_pylist()

    def tokens(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """Return the tokens of some captions, (N, L)."""
        self._tokenise(sorted({number for number in numbers if number not in self._tokens}))
        tokens = np.array([self._tokens[number] for number in numbers], dtype=np.int64).reshape(-1, self.context)
        if len(self._tokens) > AHEAD:
            self._tokens = {}
        return tokens

    def _tokenise(self, numbers: Iterable[int]) -> None:
        missing = list(numbers)
        texts = self.texts.take(pa.array(missing, pa.int64())).to_pylist()

        def name(index: int) -> str:
            first = int(np.argmax(self.numbers == missing[index]))
            return f"the image {self.keys([first])[0]}"

        self._tokens |= dict(zip(missing, tokens_of(texts, self.context, self.truncate, name), strict=True))


def require_captions(images: CaptionedImages) -> None:
    """Check that there are captions to learn from, and log the number of images without one.

    Raises:
        DarkroomError: no image has a caption, or all captions are equal.
    """
    if len(images.texts) < 2:
        reason = "no image has a caption" if not len(images) else f"all captions are {images.texts[0].as_py()!r}"
        raise DarkroomError(
            f"{reason}, so CLIP cannot be trained: add captions to the source, use a trained CLIP "
            "(`train_clip.source: pretrained`), or omit the decoder (`train_clip.source: none`)."
        )
    if missing := len(images.shards) - len(images):
        print(f"{missing:,} of {len(images.shards):,} images have no caption and are left out")


def prompts_of(
    images: CaptionedImages, classes: Sequence[str], templates: Sequence[str], most: int
) -> dict[str, list[str]]:
    """Return the prompts of each class: `templates` with its name, or its most frequent captions.

    Args:
        images: the train split.
        classes: the names of the classes; a class without captions is left out.
        templates: texts with {label}; empty: use captions.
        most: the maximum number of captions of a class; ties are resolved in alphabetical order.
    """
    if templates:
        return {name: [template.replace("{label}", name) for template in templates] for name in classes}
    table = pa.table({"label": pa.array(images.labels(), pa.string()), "caption": images.numbers})
    counts = table.group_by(["label", "caption"]).aggregate([([], "count_all")]).to_pylist()
    captions: dict[str, list[tuple[int, str]]] = {name: [] for name in classes}
    for row in counts:
        if row["label"] in captions:
            captions[row["label"]].append((-row["count_all"], images.texts[row["caption"]].as_py()))
    return {name: [text for _, text in sorted(texts)[:most]] for name, texts in captions.items() if texts}


Encode = Callable[[Tensor], Tensor]


class Examples:
    """At most `most` captioned images drawn from a split, their distinct captions, and prompts of classes.

    every: the number of training images between two scores.
    count: the number of images.
    batch: the number of images, or texts, in a forward pass.
    """

    def __init__(
        self, images: CaptionedImages, prompts: Mapping[str, Sequence[str]], most: int, batch: int, every: int = 0
    ) -> None:
        self.images, self.prompts, self.batch, self.every = images, prompts, batch, every
        self.rows = np.array(drawn(len(images), most), dtype=np.int64)
        self.count = len(self.rows)
        # The distinct captions in the order of their first images.
        self.texts, self.captions = np.unique(images.numbers[self.rows], return_inverse=True)
        names = {name: number for number, name in enumerate(prompts)}
        labels = images.labels()
        self.labels = np.array([names.get(labels[row] or "", -1) for row in self.rows], dtype=np.int64)

    @property
    def constant(self) -> float:
        """The zero-shot accuracy of a constant answer: the fraction of the most frequent class."""
        known = self.labels[self.labels >= 0]
        return float(np.bincount(known).max() / len(known))

    def scores(self, model: Contrastive, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of a CLIP in training; process `rank` of `count` computes its shard, and all get them."""
        device = model.logit_scale.device

        def images(pixels: Tensor) -> Tensor:
            return model(pixels, tokens[:1])[0]

        def texts(tokens: Tensor) -> Tensor:
            return model(pixels[:1], tokens)[1]

        pixels = torch.from_numpy(self.images.__getitems__([0])["images"]).to(device)
        tokens = torch.from_numpy(self.images.tokens([0])).to(device)
        scores = self.scored(images, texts, device, rank, count, gather)
        return {name: value for name, value in scores.items() if not name.endswith("_se")}

    def scored(
        self,
        images: Encode,
        texts: Encode,
        device: torch.device,
        rank: int = 0,
        count: int = 1,
        gather: Gather = torch.Tensor.cpu,
    ) -> dict[str, float]:
        """Return recalls and, where at least two classes have prompts and images, zero-shot accuracy.

        Args:
            images: maps uint8 (N, C, H, W) to embeddings (N, D).
            texts: maps tokens, int64 (N, L), to embeddings (N, D).
            device: the device of the inputs of both functions.
            rank: the rank of this process.
            count: the number of processes.
            gather: concatenates the rows of all processes.
        """
        share = np.array_split(self.rows, count)[rank]
        groups = [share[at : at + self.batch] for at in range(0, len(share), self.batch)]
        embeddings = [
            padded(images, torch.from_numpy(self.images.__getitems__(rows.tolist())["images"]), self.batch, device)
            for rows in (with_progress(groups, len(share), "scores") if rank == 0 else groups)
        ]
        mine = torch.cat(embeddings) if embeddings else torch.zeros(0)
        image = functional.normalize(gather(mine).float(), dim=1)
        scores: dict[str, float] = {}
        if len(self.texts) > 1:
            text = self._texts(texts, torch.from_numpy(self.images.tokens(self.texts.tolist())), device)
            scores |= recalls(image, text, torch.from_numpy(self.captions))
        if len(self.prompts) > 1 and (known := torch.from_numpy(self.labels >= 0)).any():
            labels = torch.from_numpy(self.labels)[known]
            scores |= zero_shot(image[known], self._classes(texts, device), labels)
        return scores

    def _texts(self, texts: Encode, tokens: Tensor, device: torch.device) -> Tensor:
        return functional.normalize(padded(texts, tokens, self.batch, device).float(), dim=1)

    def _classes(self, texts: Encode, device: torch.device) -> Tensor:
        prompts = [prompt for own in self.prompts.values() for prompt in own]
        classes = [number for number, own in enumerate(self.prompts.values()) for _ in own]
        tokens = to_tensor(tokens_of(prompts, self.images.context, self.images.truncate))
        return class_embeddings(self._texts(texts, tokens, device), torch.tensor(classes), len(self.prompts))
