"""Stage `sample_tokenizer`: sample a tokenizer that generates, and write `samples/tokenizer/`; empty for others."""

from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import manifest_hash, read_manifest, write_manifest
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.settings import SampleParams

OUT, MODEL = Path("samples/tokenizer"), Path("models/tokenizer")


def run(params: SampleParams) -> None:
    """Generate images, with class i modulo their number, and a grid; write none if the tokenizer does not generate."""
    require_writable(OUT)
    manifest = read_manifest(MODEL, "tokenizer")
    kind = manifest["tokenizer_kind"]
    if TOKENIZERS.has("sample", kind):
        _sample(params, manifest)
        return
    with atomic_folder(OUT) as folder:
        write_manifest(folder, "samples", images=0, classes=[], tokenizer_kind=kind, sampler={})
    print(f"the tokenizer `{kind}` does not generate: no images")


def _sample(params: SampleParams, manifest: dict[str, Any]) -> None:
    # Imported here: a tokenizer that does not generate needs no torch.
    import numpy as np

    from darkroom.device import set_up_device
    from darkroom.models.tokenizers.protocol import load_tokenizer
    from darkroom.stages.generated import write_generated

    settings = params.sample_tokenizer
    generate = TOKENIZERS.load("sample", manifest["tokenizer_kind"])
    device = set_up_device(settings.threads, params.run.device)
    model: Any = load_tokenizer(MODEL)[0]
    classes = list(manifest.get("classes", []))
    write_generated(
        OUT,
        generate(model.to(device), settings, device),
        classes,
        settings.shard_size,
        images=settings.images,
        image_shape=manifest["image_shape"],
        labels=np.arange(settings.images) % len(classes) if classes else None,
        tokenizer_kind=manifest["tokenizer_kind"],
        model=manifest_hash(MODEL),
        images_seen=manifest.get("images_seen"),
        distribution="balanced" if classes else "frequency",
        sampler=settings.model_dump(exclude={"threads", "shard_size"}),
    )
