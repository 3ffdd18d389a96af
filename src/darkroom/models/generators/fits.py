"""Whether the generator fits the tokenizer's latents, and its samples fit it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.texts import read_texts
from darkroom.diffusion.fits import require_distillable, require_sampling
from darkroom.diffusion.settings import Diffusion
from darkroom.errors import DarkroomError
from darkroom.models.generators.guides import require_guides
from darkroom.models.generators.kind_settings import OF_ROWS, READ, TEXTS
from darkroom.models.generators.settings import CLASSIFIER, NO_GENERATOR
from darkroom.models.kinds import GENERATORS
from darkroom.params.fits import refuse
from darkroom.params.section import NO_FILE, PARAMS


def fits(params: Any) -> None:
    """Check the sections of the generator, its samples and its scores.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    section, kind = params.train_generator, params.train_generator.kind
    if params.train_distilled.kind not in ("none", kind):
        refuse(
            f"`train_distilled.kind` is {params.train_distilled.kind}, and `train_generator.kind` is {kind}, of which "
            "nothing is distilled: set the former to none."
        )
    if not section.generates:
        _require_no_use(params)
        return
    _require_size(section)
    size = params.ingest.image_size // params.train_tokenizer.chosen.factor
    if reason := section.chosen.unfit(size):
        refuse(f"`train_generator.{kind}`: {reason}.")
    _require_weights(params.sample_generator.common, section)
    _require_condition(params)
    _require_bits(params)
    if isinstance(diffusion := getattr(section.chosen, "diffusion", None), Diffusion):
        sampling, source = getattr(params.sample_generator, kind), f"train_generator.{kind}"
        source += ".diffusion" if "diffusion" in type(section.chosen).model_fields else ""
        timesteps = f"{source}.timesteps", diffusion.timesteps  # type: ignore[attr-defined]
        weaker = getattr(sampling, "weaker_sigma_rel", None)
        alone = weaker is None and getattr(sampling, "weaker", NO_FILE) == NO_FILE
        dropouts = {f"{source}.label_dropout": section.chosen.label_dropout} if alone else {}
        _require_guides(f"sample_generator.{kind}", sampling, params, size)
        if alone and section.chosen.condition == "none" and sampling.guidance != 1:
            refuse(
                f"`sample_generator.{kind}.guidance` is {sampling.guidance}, and `train_generator.{kind}.model."
                "condition` is none, so there is nothing that guidance leads away from: set the former to 1.0."
            )
        if weaker is not None:
            _require_average(f"sample_generator.{kind}.weaker_{{}}".format, weaker, sampling.weaker_images, section)
        require_sampling(f"sample_generator.{kind}.{{}}".format, sampling, source, diffusion, timesteps, dropouts)
    if params.train_distilled.kind != "none":
        _require_distillable(params)


def _require_distillable(params: Any) -> None:
    """Check that there is a flow to distil, that its solver adds no noise, and that nothing but it is asked for."""
    this, how = f"`train_distilled.kind` is {params.train_distilled.kind}", params.sample_generator.dit
    diffusion = params.train_generator.dit.diffusion
    if diffusion.objective != "flow":
        refuse(
            f"{this}, and `train_generator.dit.diffusion.objective` is {diffusion.objective}, and only a flow is "
            "distilled: set the former to none, or the latter to flow."
        )
    calls = "train_distilled.calls", params.train_distilled.calls
    source = "train_generator.dit.diffusion"
    require_distillable(this, calls, "sample_generator.dit.{}".format, how, source, diffusion)
    if how.classifier != NO_FILE:
        refuse(
            f"{this}, and `sample_generator.dit.classifier` is {how.classifier}: what a classifier guides is not "
            f"distilled. Set the former to none, or the latter to {NO_FILE}."
        )
    for key, plain in (("weights", "ema"), ("checkpoint", None), ("sigma_rel", None)):
        if (value := getattr(params.sample_generator.common, key)) != plain:
            refuse(
                f"{this}, and `sample_generator.common.{key}` is {value}: the averaged weights of the end are what is "
                f"distilled. Set the former to none, or the latter to {'null' if plain is None else plain}."
            )


def _require_size(section: Any) -> None:
    """Check that a size of the transformer by name is not hidden behind numbers."""
    model = getattr(section.chosen, "model", None)
    size, numbers = getattr(model, "size", None), [getattr(model, name, None) for name in ("width", "depth", "heads")]
    if size is not None and None not in numbers:
        key = f"train_generator.{section.kind}.model"
        refuse(
            f"`{key}.size` is {size}, and `{key}.width`, `.depth` and `.heads` are {', '.join(map(str, numbers))}, so "
            "the former has no effect: set the three to null, or leave the size out."
        )


def _require_no_use(params: Any) -> None:
    """Check that nothing is asked of a generator where there is none."""
    section, sampled = params.train_generator, params.sample_generator
    _require_weights(sampled.common, section)
    asked: list[tuple[str, Any, Any]] = [  # key, value, the value that asks for nothing
        ("train_generator.training.init.folder", section.training.init.folder, NO_FILE),
        ("train_generator.training.init.url", section.training.init.url, None),
        ("train_generator.evaluate.every", section.evaluate.every, 0),
        ("sample_generator.common.processes", sampled.common.processes, 1),
        ("sample_generator.common.captions.file", sampled.common.captions.file, NO_FILE),
        ("sample_generator.dit.weaker", sampled.dit.weaker, NO_FILE),
        ("sample_generator.dit.classifier", sampled.dit.classifier, NO_FILE),
        ("score_generator.bits.generator", params.score_generator.bits.generator, NO_FILE),
    ]
    beside = {"score_generator.bits.generator": "latents", "sample_generator.common.captions.file": "clip"}
    for key, value, nothing in asked:
        if value != nothing:
            also = f" and `.{beside[key]}`" if key in beside else ""
            refuse(
                f"`{key}` is {value}, and {NO_GENERATOR}, so it has no effect: set the former{also} to "
                f"{'null' if nothing is None else nothing}, or the latter to dit or pretrained."
            )


def _require_condition(params: Any) -> None:
    """Check that what images are asked to show is stored, and that nothing else is asked for."""
    section, common, embed = params.train_generator, params.sample_generator.common, params.embed_clip
    condition = section.chosen.condition
    if common.captions.given and condition not in OF_ROWS:
        key = f"`train_generator.{section.kind}.model.condition` is {condition}, which reads no text"
        if not hasattr(section.chosen, "model"):
            key = f"`train_generator.kind` is {section.kind}, which reads no text"
        refuse(
            f"`sample_generator.common.captions.file` is {common.captions.file}, and {key}: train a dit with the "
            f"condition caption, text or tokens, or set the former and `.clip` to {NO_FILE}."
        )
    if condition == "class":
        return
    this = f"`train_generator.{section.kind}.model.condition` is {condition}"
    if common.labels is not None:
        labels = common.labels if isinstance(common.labels, str) else "a mapping"
        refuse(f"`sample_generator.common.labels` is {labels}, and {this}: set the former to null, or leave it out.")
    captions = common.captions
    if captions.given and condition in TEXTS and (condition == "caption") != (captions.clip == NO_FILE):
        refuse(
            f"`sample_generator.common.captions.file` is {captions.file} and `.clip` {captions.clip}, and {this}: set "
            f"`.clip` to {NO_FILE if condition == 'caption' else 'models/clip'}."
        )
    if condition not in OF_ROWS:
        return
    if captions.given and condition == "image":
        refuse(
            f"`sample_generator.common.captions.file` is {captions.file}, and {this}, which no text is: set the former "
            f"and `sample_generator.common.captions.clip` to {NO_FILE}, or the latter to text or tokens."
        )
    if captions.given:
        read_texts(Path(captions.file), f"{PARAMS}: `sample_generator.common.captions.file` ({captions.file})")
    if condition not in READ:
        return
    if params.train_clip.source == "none":
        refuse(f"{this}, and `train_clip.source` is none, so there is no CLIP to read: set the latter to trained.")
    if condition == "tokens" and not embed.encodings:
        refuse(f"{this}, and `embed_clip.encodings` is false: set it to true.")
    for split in ("train", "val"):
        if split not in embed.store:
            refuse(f"{this}, and `embed_clip.store` leaves out {split}: name it there.")
    if not captions.given and common.split not in embed.store:
        refuse(
            f"`sample_generator.common.split` is {common.split}, and `embed_clip.store` leaves it out: name it there."
        )


def _require_bits(params: Any) -> None:
    """Check that the bound which is wanted is that of a generator that has one."""
    bits, section = params.score_generator.bits, params.train_generator
    if not bits.wanted:
        return
    diffusion = getattr(section.chosen, "diffusion", None)
    if getattr(diffusion, "objective", None) != "gaussian":
        refuse(
            f"`score_generator.bits.generator` is {bits.generator}, and `train_generator.{section.kind}.diffusion."
            "objective` is not gaussian, of which alone there is a bound: set the latter to gaussian, or "
            f"`score_generator.bits.generator` and `.latents` to {NO_FILE}."
        )
    if section.chosen.condition != "class":
        refuse(
            f"`score_generator.bits.generator` is {bits.generator}, and `train_generator.{section.kind}.model."
            f"condition` is {section.chosen.condition}: bits per dim are measured under the class of each image."
        )


def _require_guides(key: str, sampling: Any, params: Any, size: int) -> None:
    """Check what guides beside the generator itself, by manifests that are there, and the classifier to be trained."""
    section = params.train_generator.chosen
    trained = {**section.diffusion.prediction(), "condition": section.condition}
    if trained["prediction"].get("time_shift") == "size":  # a number once the latents are known
        trained["prediction"].pop("time_shift")
    try:
        require_guides(key, sampling, trained, made=False)
    except ArtifactError as error:
        raise DarkroomError(f"{PARAMS}: `{key}`: {error}") from error
    patch = params.train_classifier.model.patch
    if getattr(sampling, "classifier", NO_FILE) == CLASSIFIER and size % patch:
        refuse(f"`train_classifier.model.patch` is {patch}, and must divide the latent's size, {size}.")


def _require_weights(common: Any, section: Any) -> None:
    """Check that the weights and classes that samples are asked of will be there."""
    if not GENERATORS.has("recipe", section.kind):
        for key, value, plain in (
            ("weights", common.weights, "ema"),
            ("checkpoint", common.checkpoint, None),
            ("sigma_rel", common.sigma_rel, None),
            ("labels", "frequency" if common.labels == "frequency" else None, None),
        ):
            if value != plain:
                refuse(
                    f"`sample_generator.common.{key}` is {value}, and `train_generator.kind` is {section.kind}, which "
                    f"trains nothing here and has neither raw weights nor averages nor counts of classes: set the "
                    f"former to {'null' if plain is None else plain}."
                )
    elif common.checkpoint is not None and common.checkpoint not in section.own_training.kept_images:
        every = section.own_training.keep_every
        refuse(
            f"`sample_generator.common.checkpoint` is {common.checkpoint}, and `train_generator.training.keep_every` "
            f"is {'null, so none is kept' if every is None else every}: set the former to a multiple of the latter "
            "below the training's images, rounded up to whole batches."
        )
    elif common.sigma_rel is not None:
        names = {"sigma_rel": "sigma_rel", "images": "average_images"}
        _require_average(
            lambda name: f"sample_generator.common.{names[name]}", common.sigma_rel, common.average_images, section
        )


def _require_average(key: Callable[[str], str], sigma_rel: float, images: int | None, section: Any) -> None:
    """Check that the training keeps what an average is rebuilt from, and that it ends within the training."""
    training = section.own_training
    if not training.ema_profiles:
        refuse(
            f"`{key('sigma_rel')}` is {sigma_rel}, and `train_generator.training.ema_profiles` is []: give that widths "
            "to rebuild it from, say [0.05, 0.1]."
        )
    if images is not None and images > training.images:
        refuse(
            f"`{key('images')}` is {images}, and `train_generator.training.images` is {training.images}: set the "
            f"former to {training.images} at most."
        )
