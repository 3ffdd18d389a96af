"""The stages that run a network without training it: batches, times the seconds of one."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from darkroom.data.latent_file import DTYPES, FORMS, code_dtype, stored_shape
from darkroom.device import set_up_device
from darkroom.diffusion.samplers import SAMPLERS
from darkroom.metrics.image import BASIC, SMALLEST, image_scores, ms_ssim
from darkroom.models.generators.dit.sample import dit_denoiser
from darkroom.models.generators.dit.settings import DiTSampling
from darkroom.models.generators.sampler import Request
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.perceptual import untrained
from darkroom.models.tokenizers.pixels import to_network
from darkroom.models.tokenizers.protocol import Codes
from darkroom.models.tokenizers.vq_ar.generate import sample_codes
from darkroom.tools.plan import trainings
from darkroom.tools.plan.facts import SPLITS, Facts
from darkroom.tools.plan.live import LiveTensors
from darkroom.tools.plan.rows import NoiseImages
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.timing import Stopwatch
from darkroom.tools.plan.trainings import dit_recipe, extractor_recipe, latent_form, section, tokenizer_recipe

BUDGET = 0.1  # seconds that a forward pass is repeated for
_INCEPTION_SIDE, _INCEPTION_FEATURES = 299, 2048


def batches(images: int, batch: int) -> int:
    """Return how many batches of exactly `batch` hold some images, the last one padded."""
    return -(-images // batch)


class Passes:
    """Forward passes of a stage, added up into its plan."""

    def __init__(self, stage: str, threads: int, device: str, watch: Stopwatch) -> None:
        self.watch = watch
        self.plan = StagePlan(stage, parameters=0, forward=0.0, gpu=True)
        self.device = set_up_device(threads, device)

    def network(self, *modules: nn.Module) -> None:
        """Count the parameters and weights of networks, and move them to the device."""
        for module in modules:
            module.eval().to(self.device)
            self.plan.uses.append(type(module).__module__)
            self.plan.parameters = (self.plan.parameters or 0) + sum(p.numel() for p in module.parameters())
            held = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
            self.plan.memory["weights"] = self.plan.memory.get("weights", 0) + held

    def add(self, function: Callable[[Tensor], Any], batch: Tensor, calls: float, images: int, scale: int = 1) -> None:
        """Measure `function` of a batch, which the stage calls `calls` times for `images` images.

        Args:
            function: a forward pass; a result on another device than the batch is waited for.
            batch: what it takes.
            calls: how often the stage calls it.
            images: how many images of the stage's output that makes, for the operations an image.
            scale: how often one call here stands for.
        """
        batch = batch.to(self.device)
        with torch.inference_mode():
            with FlopCounterMode(display=False) as flops, LiveTensors([batch]) as live:
                function(batch)
            seconds = self.watch.seconds_of(lambda: function(batch), self.device, BUDGET)
        self.plan.seconds += calls * seconds * scale
        self.plan.forward = (self.plan.forward or 0.0) + flops.get_total_flops() * calls * scale / max(1, images)
        needed = live.peak + batch.nbytes
        self.plan.memory["activations"] = max(self.plan.memory.get("activations", 0), needed)


def noise_images(facts: Facts, batch: int) -> Tensor:
    """Return a batch of images of noise, uint8 (N, C, H, W)."""
    return torch.as_tensor(NoiseImages(batch, facts.image_shape, 1).__getitems__(range(batch))["images"])


def plan_encode(facts: Facts, part: str) -> StagePlan:
    """Plan encode_latents of a part: each shard is padded to whole batches, and mirror images come in their own."""
    params, ingest = section("encode_latents", part), section("ingest", part).ingest
    settings = params.encode_latents
    passes = Passes(f"encode_latents@{part}", settings.threads, params.run.device, facts.watch)
    model = tokenizer_recipe(facts).model
    passes.network(model)
    counts = facts.images[part]
    calls = 0
    for split in SPLITS:
        whole, rest = divmod(counts[split], ingest.shard_size)
        calls += whole * batches(ingest.shard_size, settings.batch) + batches(rest, settings.batch)
    total, sides = sum(counts.values()), 1 + (part in facts.mirrored)
    form = latent_form(facts)
    encode = model.encode_codes if form == "codes" else model.encode
    passes.add(encode, noise_images(facts, settings.batch), sides * calls, total)
    passes.plan.seconds += total * facts.read_seconds
    dtype = code_dtype(model.codebook_size) if form == "codes" else settings.dtype
    row = len(FORMS[form]) * prod(stored_shape(form, model.latent_shape)) * DTYPES[dtype].itemsize
    passes.plan.disk = {"outputs": 2 * total * sides * row}
    return passes.plan


def plan_score_tokenizer(facts: Facts) -> StagePlan:
    """Plan score_tokenizer: every image is reconstructed once more for each extractor, which sees both."""
    params = section("score_tokenizer")
    settings = params.score_tokenizer
    passes = Passes("score_tokenizer", settings.threads, params.run.device, facts.watch)
    model = tokenizer_recipe(facts).model
    passes.network(model)
    images, total = noise_images(facts, settings.batch), facts.count(settings.split)
    calls = batches(total, settings.batch)
    extractors = sorted({"in_domain", *params.reference_stats.extractors})
    passes.add(model.reconstruct, images, (1 + len(extractors)) * calls, total)
    see(passes, extractors, facts, settings.batch, 2 * total)
    if settings.lpips == "lpips":
        network = untrained("lpips", facts.image_shape[1])
        passes.network(network)
        passes.add(lambda x: network(to_network(x), to_network(x)), images, calls, total)
    if isinstance(model, Codes):
        seen = total + facts.count("train")
        passes.add(model.encode_codes, images, batches(seen, settings.batch), total)
        passes.plan.seconds += seen * facts.read_seconds
    measures = dict(BASIC) | ({"ms_ssim": ms_ssim} if facts.image_shape[1] >= SMALLEST else {})
    at_once = facts.watch.seconds_of(lambda: image_scores([(images, images)], measures), torch.device("cpu"), BUDGET)
    passes.plan.seconds += calls * at_once + total * facts.read_seconds
    passes.plan.disk = {"outputs": int(6 * settings.grid_images * facts.image_bytes)}
    return passes.plan


def _inception() -> nn.Module:
    """Return a network with the layers of FID's Inception, untrained: its weights need not be here to time it."""
    from torchvision.models import inception_v3

    return inception_v3(weights=None, aux_logits=False, init_weights=False)


def see(passes: Passes, names: list[str], facts: Facts, batch: int, total: int) -> None:
    """Add the passes of extractors over `total` images."""
    images, calls = noise_images(facts, batch), batches(total, batch)
    if "in_domain" in names:
        judge = extractor_recipe(facts).model
        passes.network(judge)
        passes.add(judge.features, images, calls, total)
    if "inception" in names:
        network = _inception()
        passes.network(network)
        few = min(batch, 8)  # its time grows with the images alone
        passes.add(network, torch.rand(few, 3, _INCEPTION_SIDE, _INCEPTION_SIDE), calls * batch / few, total)
        passes.plan.notes.append(
            f"{passes.plan.stage}: Inception is timed by torchvision's, {few} images at once; distances in its "
            f"{_INCEPTION_FEATURES:,} features take minutes more"
        )
    passes.plan.seconds += len(names) * total * facts.read_seconds


def plan_reference(facts: Facts) -> StagePlan:
    """Plan reference_stats: each extractor sees the reference and the held-out images."""
    params = section("reference_stats")
    settings = params.reference_stats
    passes = Passes("reference_stats", settings.threads, params.run.device, facts.watch)
    total = facts.count(settings.split) + facts.count(settings.held_out)
    see(passes, list(settings.extractors), facts, settings.batch, total)
    kept = min(settings.kid_images, facts.count(settings.split))
    lengths = {"in_domain": section("train_extractor").train_extractor.model.features, "inception": _INCEPTION_FEATURES}
    sizes = [lengths[name] for name in settings.extractors]
    passes.plan.disk = {"outputs": 2 * sum(2 * 8 * size**2 + 4 * kept * size for size in sizes)}
    return passes.plan


def plan_sample(facts: Facts) -> StagePlan:
    """Plan sample_generator: its images, and their files."""
    params = section("sample_generator")
    settings = params.sample_generator.common
    passes = Passes("sample_generator", settings.threads, params.run.device, facts.watch)
    _generate(passes, settings, params.sample_generator.dit, facts)
    passes.plan.seconds += settings.images * facts.prepare_seconds
    passes.plan.disk = {"outputs": int(2 * settings.images * (facts.image_bytes + 1024))}
    return passes.plan


def plan_dit(facts: Facts) -> StagePlan:
    """Plan train_generator: the training, and the scores while it trains."""
    plan = trainings.plan_dit(facts)
    params = section("train_generator")
    settings = params.train_generator.evaluate
    if settings.every and plan.source == "measured":
        passes = Passes("train_generator", params.train_generator.own_training.threads, params.run.device, facts.watch)
        _generate(passes, settings, params.train_generator.chosen.sampling, facts)
        see(passes, ["in_domain"], facts, settings.batch, settings.images)
        plan.seconds += params.train_generator.own_training.images // settings.every * passes.plan.seconds
    return plan


def _generate(passes: Passes, settings: Request, sampling: DiTSampling, facts: Facts) -> None:
    """Add the passes that make images: evaluations of the solver with guidance, then the decoder."""
    recipe = dit_recipe(facts, passes.device)
    model, tokenizer = recipe.model, recipe.tokenizer
    passes.network(model, tokenizer)
    noise = torch.randn(settings.batch, *tokenizer.latent_shape)
    labels = (torch.arange(settings.batch) % facts.classes).to(passes.device)
    denoise = dit_denoiser(model, recipe.objective, labels, model.null_label, sampling.guidance)
    times = SAMPLERS[sampling.solver](recipe.objective, sampling.steps, sampling.eta, None).times.to(passes.device)
    calls = batches(settings.images, settings.batch)
    time = times[0].expand(settings.batch)
    passes.add(lambda x: denoise(x, time, None), noise, calls, settings.images, scale=len(times))
    passes.add(tokenizer.decode, noise, calls, settings.images)


def plan_score(facts: Facts) -> StagePlan:
    """Plan score_generator: each extractor of the reference sees the samples."""
    params = section("score_generator")
    settings = params.score_generator
    passes = Passes("score_generator", settings.threads, params.run.device, facts.watch)
    names = sorted({"in_domain", *section("reference_stats").reference_stats.extractors})
    see(passes, names, facts, settings.batch, section("sample_generator").sample_generator.common.images)
    return passes.plan


def _generates() -> bool:
    return TOKENIZERS.has("sample", section("train_tokenizer").train_tokenizer.kind)


def plan_sample_tokenizer(facts: Facts) -> StagePlan:
    """Plan sample_tokenizer: all codes of its images, one after the other; nothing where the kind does not generate."""
    if not _generates():
        return StagePlan("sample_tokenizer")
    params = section("sample_tokenizer")
    settings = params.sample_tokenizer
    passes = Passes("sample_tokenizer", settings.threads, params.run.device, facts.watch)
    model = tokenizer_recipe(facts).model
    passes.network(model)
    numbers, calls = torch.arange(settings.batch), batches(settings.images, settings.batch)
    classes = max(1, model.config.classes)
    passes.add(
        lambda x: sample_codes(model, settings, range(settings.batch), x % classes), numbers, calls, settings.images
    )
    passes.plan.seconds += settings.images * facts.prepare_seconds
    passes.plan.disk = {"outputs": int(2 * settings.images * (facts.image_bytes + 1024))}
    return passes.plan


def plan_score_tokenizer_samples(facts: Facts) -> StagePlan:
    """Plan score_tokenizer_samples: as score_generator, where there are samples."""
    if not _generates():
        return StagePlan("score_tokenizer_samples")
    params = section("score_tokenizer_samples")
    settings = params.score_tokenizer_samples
    passes = Passes("score_tokenizer_samples", settings.threads, params.run.device, facts.watch)
    names = sorted({"in_domain", *section("reference_stats").reference_stats.extractors})
    see(passes, names, facts, settings.batch, section("sample_tokenizer").sample_tokenizer.images)
    return passes.plan


def plan_ingest(facts: Facts, part: str) -> StagePlan:
    """Plan ingest of a part: no network; its first images were prepared and stored in memory."""
    total = sum(facts.images[part].values())
    # A member of a tar has a header of 512 bytes and is filled up to 512; its texts are two members more. Of an image
    # in place there is a row of the index.
    size = 512 if part in facts.in_place else facts.image_bytes + 4 * 1024
    return StagePlan(
        f"ingest@{part}",
        disk={"outputs": int(2 * total * size)},
        seconds=facts.open_seconds + total * facts.prepare_seconds,
    )
