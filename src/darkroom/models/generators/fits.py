"""Check that the generator fits the tokenizer's latents, and that its samples fit the generator."""

import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.diffusion.settings import Diffusion, require_sampling
from darkroom.errors import DarkroomError
from darkroom.models.generators.guides import require_guides
from darkroom.models.generators.kind_settings import READ
from darkroom.models.kinds import GENERATORS, TOKENIZERS
from darkroom.params.fits import refuse, refuse_both, require_dropout, require_stored
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
        remedy = "which cannot be distilled: set the former to none"
        refuse_both(params, "train_distilled.kind", "train_generator.kind", remedy)
    if not section.generates:
        _require_weights(params)
        _require_plain(params, _USES, "train_generator.kind", "so it has no effect", ", or choose a generator")
        return
    _require_weights(params)
    _require_codes(params)
    _require_condition(params)
    _require_bits(params)
    sampling, source = getattr(params.sample_generator, kind), f"train_generator.{kind}"
    alone = getattr(sampling, "guide", NO_FILE) == NO_FILE
    if alone and section.chosen.condition == "none" and getattr(sampling, "guidance", 1) != 1:
        keys = f"sample_generator.{kind}.guidance", f"{source}.model.condition"
        refuse_both(params, *keys, "so there is no unconditional prediction for guidance: set the former to 1.0")
    if section.chosen.codes:
        key = f"{source}.{section.chosen.dropout_key}"
        require_dropout(f"sample_generator.{kind}.guidance", sampling.guidance, key, section.chosen.label_dropout)
    _require_mean_flow(params)
    if isinstance(diffusion := getattr(section.chosen, "diffusion", None), Diffusion):
        source += ".diffusion" if "diffusion" in type(section.chosen).model_fields else ""
        timesteps = f"{source}.timesteps", diffusion.timesteps  # type: ignore[attr-defined]
        dropouts = {f"{source}.label_dropout": section.chosen.label_dropout} if alone else {}
        _require_guides(f"sample_generator.{kind}", sampling, params)
        require_sampling(f"sample_generator.{kind}.{{}}".format, sampling, source, diffusion, timesteps, dropouts)
    if params.train_distilled.kind != "none":
        _require_distillable(params)


def _require_plain(params: Any, keys: Mapping[str, Any], other: str, why: str, instead: str = "") -> None:
    """Check that keys are at the values that disable them: they cannot be combined with `other`."""
    for key, plain in keys.items():
        if attrgetter(key)(params) != plain:
            also = f" and `.{_WITH[key]}`" if key in _WITH else ""
            remedy = f"{why}: set the former{also} to {'null' if plain is None else plain}{instead}"
            refuse_both(params, key, other, remedy)


_WITH = {"score_generator.bits.generator": "latents"}  # set both
# The choice of a training's weights.
_CHOSEN = {"sample_generator.common.weights": "ema", "sample_generator.common.checkpoint": None}
# Keys that need a generator.
_USES = {
    "train_generator.training.init.folder": NO_FILE,
    "train_generator.training.init.url": None,
    "train_generator.evaluate.every": 0,
    "sample_generator.common.processes": 1,
    "sample_generator.dit.guide": NO_FILE,
    "sample_generator.dit.classifier": NO_FILE,
    "score_generator.bits.generator": NO_FILE,
}


def _require_distillable(params: Any) -> None:
    """Check that there is a flow to distil, that its solver adds no noise, and that other options are off."""
    source, section, this = "train_generator.dit.diffusion", "sample_generator.dit", "train_distilled.kind"
    diffusion, sampling = params.train_generator.dit.diffusion, params.sample_generator.dit
    if diffusion.objective != "flow":
        refuse_both(params, this, f"{source}.objective", "and only a flow is distilled: set the latter to flow")
    if diffusion.flow_target not in ("velocity", "x0"):
        remedy = "which is undefined at pure noise, where the first call begins: set the latter to velocity"
        refuse_both(params, this, f"{source}.flow_target", remedy)
    if sampling.solver == "euler_maruyama":
        remedy = "which adds noise, so there is no single path to distil: set the latter to euler, heun or dpm"
        refuse_both(params, this, f"{section}.solver", remedy)
    if params.train_distilled.calls >= sampling.count:
        refuse_both(params, "train_distilled.calls", f"{section}.steps", "which must be larger: lower the former")
    _require_plain(params, {f"{section}.classifier": NO_FILE}, this, "guidance by a classifier cannot be distilled")
    _require_plain(params, _CHOSEN, this, "and only the averaged weights of the end can be distilled")


def _require_mean_flow(params: Any) -> None:
    """Check that MeanFlow has a null to guide with, and one process: its derivative skips the hooks of gradients."""
    section, source = params.train_generator, "train_generator.dit.diffusion"
    if section.kind != "dit" or section.dit.diffusion.objective != "mean_flow":
        return
    if section.training.processes > 1:
        keys = "train_generator.training.processes", f"{source}.objective"
        refuse_both(params, *keys, "which needs one process: set the former to 1")
    if params.run.activation_checkpointing:
        remedy = "whose derivative cannot be recomputed: set the former to false"
        refuse_both(params, "run.activation_checkpointing", f"{source}.objective", remedy)
    loss = section.dit.diffusion.mean_flow
    if loss.guidance == 1 and not loss.mix:
        return
    name, plain = ("guidance", 1.0) if loss.guidance != 1 else ("mix", 0.0)
    key = f"{source}.mean_flow.{name}"
    if section.chosen.condition == "none":
        remedy = f"so there is no unconditional prediction for guidance: set the former to {plain}"
        refuse_both(params, key, "train_generator.dit.model.condition", remedy)
    if not section.chosen.label_dropout:
        remedy = f"so the unconditional prediction is never trained: raise the latter, or set the former to {plain}"
        refuse_both(params, key, f"{source}.label_dropout", remedy)


def _require_codes(params: Any) -> None:
    """Check that latents are codes where the generator needs them, and fit its initial weights."""
    this, tokenizer = "train_generator.kind", params.train_tokenizer
    if not params.train_generator.chosen.codes:
        return
    if params.encode_latents.latents == "codes":
        _require_same_codes(params)
        if params.train_generator.chosen.causal and params.sample_generator.common.compile:
            remedy = "whose inputs grow with each code, which cannot be compiled: set the former to false"
            refuse_both(params, "sample_generator.common.compile", this, remedy)
        return
    if tokenizer.chosen.discrete:
        remedy = "but this generator needs discrete latents: set the latter to codes"
        refuse_both(params, this, "encode_latents.latents", remedy)
    names = [name for name in TOKENIZERS if TOKENIZERS.load("settings", name).discrete]
    remedy = f"but this generator needs discrete latents: set the latter to {', '.join(names[:-1])} or {names[-1]}"
    refuse_both(params, this, "train_tokenizer.kind", remedy)


def _require_same_codes(params: Any) -> None:
    """Check that initial weights are of a transformer over as many codes, by its configuration."""
    key, tokenizer = "train_generator.training.init.folder", params.train_tokenizer
    folder = params.train_generator.training.init.folder
    if folder == NO_FILE or not (file := Path(folder) / "config.json").is_file():
        return  # weights in a file are checked when the training begins
    size, kind = params.ingest.image_size, params.train_generator.kind
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        refuse(f"`{key}` is {folder}, but {file} is not JSON ({error}): choose other weights.")
    if "codes" not in config or config["causal"] != params.train_generator.chosen.causal:
        refuse(f"`{key}` is {folder}, which holds another network than the generator {kind}: choose other weights.")
    codes, side = getattr(tokenizer.chosen, "codebook_size", config["codes"]), -(-size // tokenizer.chosen.factor)
    if config["codes"] != codes:
        refuse(
            f"`{key}` is {folder}, a transformer over a codebook of {config['codes']:,} codes, but "
            f"`train_tokenizer.{tokenizer.kind}.codebook_size` is {codes:,}: use weights for the same tokenizer."
        )
    if config["side"] != side:
        refuse(
            f"`{key}` is {folder}, a transformer over {config['side'] ** 2:,} codes of an image, but images of {size} "
            f"pixels have {side**2:,}: use weights for the same number of codes."
        )


def _require_condition(params: Any) -> None:
    """Check that the conditions of the images are stored, and that no other conditions are set."""
    section, common, embed = params.train_generator, params.sample_generator.common, params.embed_clip
    condition, this = section.chosen.condition, f"train_generator.{section.kind}.model.condition"
    if condition == "class":
        return
    if common.labels is not None:
        refuse_both(params, "sample_generator.common.labels", this, "set the former to null, or leave it out")
    if condition not in READ:
        return
    if params.train_clip.source == "none":
        refuse_both(params, this, "train_clip.source", "so there is no CLIP to read: set the latter to trained")
    if condition == "tokens" and not embed.encodings:
        refuse_both(params, this, "embed_clip.encodings", "set the latter to true")
    for split in ("train", "val"):
        if split not in embed.store:
            refuse(f"`{this}` is {condition}, but `embed_clip.store` leaves out {split}: add it there.")
    require_stored(params, "sample_generator.common.split", common.split)


def _require_bits(params: Any) -> None:
    """Check that bits per dim are only requested from a generator with a likelihood or a bound."""
    section, key, model = params.train_generator, "score_generator.bits.generator", params.train_generator.kind
    if not params.score_generator.bits.enabled:
        return
    diffusion, exact = getattr(section.chosen, "diffusion", None), section.chosen.causal
    if section.chosen.codes and not exact:
        refuse_both(params, key, "train_generator.kind", f"which has no likelihood: set the former to {NO_FILE}")
    if not exact and getattr(diffusion, "objective", None) != "gaussian":
        refuse(
            f"`{key}` is {params.score_generator.bits.generator}, but `train_generator.{model}.diffusion.objective` is "
            f"not gaussian, which the bound needs: set the latter to gaussian, or `{key}` and `.latents` to "
            f"{NO_FILE}."
        )
    if section.chosen.condition not in ("class", *["none"] * exact):
        remedy = "and bits per dim are measured under the class of each image: set the former and `.latents` to "
        refuse_both(params, key, f"train_generator.{model}.model.condition", f"{remedy}{NO_FILE}")


def _require_guides(key: str, sampling: Any, params: Any) -> None:
    """Check the additional guides by their manifests."""
    section = params.train_generator.chosen
    trained = {**section.diffusion.prediction(), "condition": section.condition}
    try:
        require_guides(key, sampling, trained, exists=False)
    except ArtifactError as error:
        raise DarkroomError(f"{PARAMS}: `{key}`: {error}") from error


def _require_weights(params: Any) -> None:
    """Check that the weights and classes of the samples will exist."""
    common, section = params.sample_generator.common, params.train_generator
    if not GENERATORS.has("recipe", section.kind):
        labels = {"sample_generator.common.labels": None} if common.labels == "frequency" else {}
        _require_plain(params, _CHOSEN | labels, "train_generator.kind", "which has no training of its own")
    elif common.checkpoint is not None and common.checkpoint not in section.own_training.kept_images:
        every = section.own_training.save_every
        refuse(
            f"`sample_generator.common.checkpoint` is {common.checkpoint}, but `train_generator.training.save_every` "
            f"is {'null, so none is kept' if every is None else every}: set the former to a multiple of the latter "
            "below the training's images, rounded up to whole batches."
        )
