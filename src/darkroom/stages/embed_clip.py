"""Stage `embed_clip@PART`: embed the shards of a part with the CLIP, and write `data/embeddings/PART/`."""

from collections.abc import Mapping
from pathlib import Path

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.manifest import read_manifest
from darkroom.artifacts.models import CLIP, CLIP_FOLDER
from darkroom.data.embedding_imports import Dalle2
from darkroom.data.embedding_writer import write_embeddings
from darkroom.data.reader import ImageShards
from darkroom.models.clip.settings import EmbedParams, folder_of

OUT = Path("data/embeddings")


def run(params: EmbedParams, part: str) -> None:
    """Embed the splits of a part that `store` names; row i of a shard is row i of the image shard's index."""
    require_writable(OUT / part)
    splits = {split: ImageShards.open_parts([part], split) for split in ("train", "val", "test")}
    if read_manifest(CLIP_FOLDER, CLIP)["weights"] is None:
        write_embeddings(OUT / part, part, splits, lambda *_: {}, [], clip="", normalised=True, dim=0, store=[])
        print("no embeddings: there is no CLIP (`train_clip.source` is none)")
        return
    _embed(params, part, splits)


def _embed(params: EmbedParams, part: str, splits: Mapping[str, ImageShards]) -> None:
    # Imported here: without a CLIP torch is not needed.
    from darkroom.device import set_up_device
    from darkroom.models.clip.embedding import Embedder, Joined
    from darkroom.models.clip.load import load_clip

    settings = params.embed_clip
    device = set_up_device(settings.threads, params.run.device)
    clip = load_clip().to(device)
    embedder = Embedder(clip, settings.batch, settings.normalise, settings.encodings)
    folder = folder_of(params, part)
    joined = None
    if folder is not None:
        dalle2 = Dalle2(Path(folder), settings.imported.subfolders, settings.imported.index_width)
        joined = Joined(dalle2, embedder, settings.imported.missing == "compute")
    captioned = any(shards.caption_column.null_count < len(shards) for shards in splits.values())
    names = ["image", *(["text", *(["encoding"] if settings.encodings else [])] if captioned else [])]
    write_embeddings(
        OUT / part,
        part,
        splits,
        lambda reader, shard: (joined or embedder).shard(reader, shard, names),
        names,
        clip=clip.fingerprint,
        normalised=settings.normalise,
        dim=clip.embed_dim,
        encoding_shape=(clip.context_length, clip.text_width),
        store=settings.store,
        source={"layout": "dalle2" if joined else None},
    )
    images = sum(len(splits[split]) for split in settings.store)
    print(f"{images:,} images to embeddings of length {clip.embed_dim}{f', {joined.summary()}' if joined else ''}")
