"""Stage `sample_generator`: models in, `samples/generator/` out."""

from pathlib import Path

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact
from darkroom.data.images import ImageSpec
from darkroom.device import set_up_device
from darkroom.models.generators.sample_settings import Params
from darkroom.models.generators.sampler import generate
from darkroom.models.kinds import GENERATORS
from darkroom.models.tokenizers.load import load_tokenizer
from darkroom.stages.generated import write_generated

OUT, MODEL = Path("samples/generator"), Path("models/generator")


def run(params: Params) -> None:
    """Generate images, class i modulo the number of classes, and a grid with one class a column."""
    settings = params.sample_generator.common
    require_writable(OUT)
    device = set_up_device(settings.threads, params.run.device)
    manifest = open_artifact(MODEL, "generator")
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), ImageSpec.of(manifest).shape)
    if manifest["tokenizer"] != tokenizer_hash:
        raise ArtifactError(
            f"{MODEL} was trained on latents of another tokenizer than models/tokenizer holds: "
            "train it again (`dvc repro train_generator`)."
        )
    kind = manifest["generator_kind"]
    sampling = getattr(params.sample_generator, kind, None)
    if sampling is None:
        raise ArtifactError(
            f"{MODEL} holds a generator of the kind `{kind}`, and params.yaml chooses another: train it again "
            "(`dvc repro train_generator`)."
        )
    sampler = GENERATORS.load("sampler", kind).open(
        MODEL, manifest, tokenizer.to(device), settings.weights, settings.sigma_rel
    )
    write_generated(
        OUT,
        generate(sampler.to(device), settings, sampling),
        manifest["classes"],
        settings.shard_size,
        images=settings.images,
        image_shape=list(ImageSpec.of(manifest).shape),
        model=manifest_hash(MODEL),
        sampler={**settings.model_dump(exclude={"threads", "shard_size"}), **sampling.model_dump()},
    )
