"""The stages that train: their real recipe and networks on rows of noise, counted and timed for a few seconds."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import torch

from darkroom.check.check import schema
from darkroom.device import set_up_device
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe, config_of
from darkroom.models.tokenizers.pretrained.settings import Pretrained
from darkroom.params.run import Run
from darkroom.params.section import validate
from darkroom.params.stage import given
from darkroom.params.training import Training
from darkroom.stages import train_extractor, train_teacher, train_tokenizer
from darkroom.terminal.tables import bytes_of
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.rehearsal import rehearsal
from darkroom.tools.plan.rows import NoiseImages, NoiseLatents
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.step import Step
from darkroom.tools.plan.timing import emptied
from darkroom.training.precision import allow_tf32
from darkroom.training.recipe import Recipe

BUDGET = 0.4  # seconds that updates are repeated for
IMPORT = 20.0  # seconds that published weights take, once they are downloaded


def section(stage: str, item: str | None = None) -> Any:
    """Return what dvc.yaml gives to a stage, validated."""
    return validate(schema(stage), given(stage, item))


def tokenizer_recipe(facts: Facts) -> Any:
    """Return the recipe of train_tokenizer on noise."""
    rows = (NoiseImages(facts.count(split), facts.image_shape, facts.classes) for split in ("train", "val"))
    params, perceptual = section("train_tokenizer"), None
    if isinstance(params.train_tokenizer.chosen, Pretrained):
        from darkroom.models.tokenizers.pretrained.network import untrained as without_weights

        return SimpleNamespace(model=without_weights(params.train_tokenizer.chosen, facts.image_shape))
    if (wanted := params.train_tokenizer.perceptual) is not None:
        from darkroom.models.tokenizers.perceptual import untrained

        teacher = teacher_recipe(facts).model if wanted.network == "teacher" else None
        perceptual = untrained(wanted.network, facts.image_shape[1], teacher)
    train, val = rows
    return train_tokenizer.build(params, facts.image_shape, train, val, perceptual)


def extractor_recipe(facts: Facts) -> Any:
    """Return the recipe of train_extractor on noise."""
    rows = (NoiseImages(facts.count(split), facts.image_shape, facts.classes) for split in ("train", "val"))
    return train_extractor.build(section("train_extractor"), facts.image_shape, facts.classes, *rows)


def teacher_recipe(facts: Facts) -> Any:
    """Return the recipe of train_teacher on noise."""
    rows = (NoiseImages(facts.count(split), facts.image_shape, facts.classes) for split in ("train", "val"))
    return train_teacher.build(section("train_teacher"), facts.image_shape, facts.classes, *rows)


def dit_recipe(facts: Facts, device: torch.device) -> Any:
    """Return the recipe of train_generator on noise, with an untrained tokenizer on the device."""
    tokenizer = tokenizer_recipe(facts).model.eval().to(device)
    shape, form = tokenizer.latent_shape, latent_form(facts)
    book = tokenizer.codebook.detach().float() if form == "codes" else None
    train, val = (
        NoiseLatents(facts.count(split), shape, facts.classes, form, 0 if book is None else len(book))
        for split in ("train", "val")
    )
    scaler = LatentScaler([0.0] * shape[0], [1.0] * shape[0])
    settings = section("train_generator").train_generator
    dit, seed = settings.chosen, settings.own_training.seed
    model = DiT(config_of(dit, shape[0], shape[1], facts.classes))
    return DiTRecipe(model, dit.diffusion, seed, train, val, scaler, tokenizer, dit.sampling, codebook=book)


def latent_form(facts: Facts) -> str:
    """Return the form in which `encode_latents` stores latents: distribution, point or codes."""
    part = next(iter(facts.images))
    if section("encode_latents", part).encode_latents.latents == "codes":
        return "codes"
    with torch.device("meta"):
        model = tokenizer_recipe(facts).model.eval()
        logvar = model.encode(torch.zeros(1, *facts.image_shape, dtype=torch.uint8))[1]
    return "point" if logvar is None else "distribution"


def plan_tokenizer(facts: Facts) -> StagePlan:
    """Plan train_tokenizer: its output is the averaged weights."""
    params = section("train_tokenizer")
    if isinstance(params.train_tokenizer.chosen, Pretrained):
        with torch.device("meta"):
            parameters = sum(p.numel() for p in tokenizer_recipe(facts).model.parameters())
        disk = {"outputs": 2 * 4 * parameters}
        return StagePlan("train_tokenizer", parameters=parameters, disk=disk, seconds=IMPORT, source="guess")
    return plan_training(
        "train_tokenizer",
        lambda device: tokenizer_recipe(facts),
        params.train_tokenizer.own_training,
        params.run,
        facts,
        1,
    )


def plan_extractor(facts: Facts) -> StagePlan:
    """Plan train_extractor: its output is the averaged weights."""
    params = section("train_extractor")
    return plan_training(
        "train_extractor", lambda device: extractor_recipe(facts), params.train_extractor.training, params.run, facts, 1
    )


def plan_teacher(facts: Facts) -> StagePlan:
    """Plan train_teacher: its output is the averaged weights, or nothing where no loss asks for it."""
    params = section("train_teacher")
    if params.idle:
        return StagePlan("train_teacher")
    return plan_training(
        "train_teacher", lambda device: teacher_recipe(facts), params.train_teacher.training, params.run, facts, 1
    )


def plan_dit(facts: Facts) -> StagePlan:
    """Plan train_generator: its output is the averaged and the raw weights."""
    params = section("train_generator")
    return plan_training(
        "train_generator",
        lambda device: dit_recipe(facts, device),
        params.train_generator.own_training,
        params.run,
        facts,
        2,
    )


def _available(device: torch.device) -> int:
    """Return the bytes that a device has free."""
    return torch.cuda.mem_get_info()[0] if device.type == "cuda" else psutil.virtual_memory().available


def plan_training(
    stage: str,
    build: Callable[[torch.device], Recipe],
    settings: Training,
    run: Run,
    facts: Facts,
    copies: int,
) -> StagePlan:
    """Plan one training: on `meta` first, which costs nothing; then, where that fits, on the device.

    Args:
        stage: its name.
        build: returns the recipe on rows of noise, its networks where `torch.device` says.
        settings: its section of params.yaml.
        run: how it runs.
        facts: the data.
        copies: how often the weights stand in its output.
    """
    device = set_up_device(settings.threads, run.device)
    allow_tf32(settings.tf32)
    meta = torch.device("meta")
    with meta:
        paper = Step(build(meta), settings, run, meta)
    forward, backward = paper.operations()
    memory = paper.memory | {"activations": paper.activations()}
    weights = memory["weights"]
    profiles = len(settings.ema_profiles) * settings.ema_snapshots
    state = weights + memory["averages"] + memory["optimizer"]
    plan = StagePlan(
        stage,
        gpu=True,
        parameters=paper.parameters,
        forward=forward / paper.micro,
        backward=backward / paper.micro,
        memory=memory,
        disk={"outputs": 2 * weights * (copies + profiles), "state": (run.keep + 1) * state},
        uses=[type(each).__module__ for each in (paper.recipe, *paper.modules)],
    )
    if (needed := sum(memory.values())) > _available(device):
        plan.source = "too large"
        plan.notes.append(
            f"{stage} needs about {bytes_of(needed)}, and {bytes_of(_available(device))} are free on {device.type}: it "
            "was not timed; lower `run.micro_batch`, or set `run.activation_checkpointing`"
        )
        return plan
    del paper
    try:
        with emptied(device):
            _measure(plan, build(device), settings, facts, run, device)
    except torch.OutOfMemoryError:
        plan.source = "too large"
        plan.notes.append(f"{stage} ran out of memory: lower `run.micro_batch`, now {run.micro_batch or 'all'}")
    return plan


def _measure(plan: StagePlan, recipe: Recipe, settings: Training, facts: Facts, run: Run, device: torch.device) -> None:
    """Fill in time, and on a GPU memory, from real updates on the device."""
    validated = len(recipe.val)
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    with rehearsal(recipe, settings, run, facts.watch) as rehearsed:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        update, first = rehearsed.update_seconds(BUDGET)
        if device.type == "cuda":
            rest = sum(size for name, size in plan.memory.items() if name not in ("activations", "exchange"))
            plan.memory["activations"] = max(0, torch.cuda.max_memory_allocated() - before - rest)
        # Workers read while the network works; without them the training process reads.
        read = facts.read_seconds if "images" in recipe.train.__getitems__([0]) else 0.0
        reading = 0.0 if run.workers else settings.batch // settings.processes * read
        plan.seconds = first + settings.images // settings.batch * (update + reading)
        validations = -(-settings.images // settings.validate_every)
        each = rehearsed.validation_seconds() + read
        plan.seconds += validations * validated / settings.processes * each
        grids = -(-settings.images // run.grid_every) if run.grid_every else 0
        if grids:
            plan.seconds += 2 * grids * rehearsed.grid_seconds()  # one of the averaged weights, one of the raw ones
