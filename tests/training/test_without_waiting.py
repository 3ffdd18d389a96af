"""What a GPU asks of each training's update, asserted without one, on the real body of each stage.

No operation makes the host wait for the device, the networks are captured whole by torch.compile, and weights stay in
float32 where the computations are not. Two things do wait, and are left out: CLIP counts the captions of a batch that
differ, and a codebook looks for dead codes, as the library has it.
"""

import contextlib
import importlib
import sys
from contextlib import chdir

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from vector_quantize_pytorch.vector_quantize_pytorch import Codebook

from darkroom.check.check import schema
from darkroom.dag.stages import TRAININGS
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.tools.plan.miniature import Miniature, count_images, enter, scratch
from darkroom.tools.plan.rehearsal import endless, first_image, rehearse
from darkroom.training import precision
from darkroom.training.start import open_training
from tools.plan.conftest import clone  # noqa: F401
from tools.plan.test_plan import KNOWN, change

aten = torch.ops.aten
WAITING = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim, aten.equal}
WAITING |= {aten.bincount}
READING = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
SENDING = "darkroom.device"  # whose `to_device` waits for nothing


class WaitsError(AssertionError):
    """The host would wait for the device."""


class Device(TorchDispatchMode):
    """Refuses operations whose result the host needs before it goes on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = func.overloadpacket in (aten.index, aten.index_put_, aten.index_put) and any(
            isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(args[1])
        )
        if func.overloadpacket in WAITING or masks:
            raise WaitsError(str(func))
        return func(*args, **(kwargs or {}))


def sent(to):
    """Return `Tensor.to`, which refuses a device: from ordinary memory of the host a GPU copies when it has ended."""

    def careful(self, *args, **kwargs):
        caller = sys._getframe(1)
        name = caller.f_globals["__name__"]
        devices = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.device)]
        if devices and name.startswith("darkroom.") and name != SENDING:
            raise WaitsError(f"{caller.f_code.co_filename}:{caller.f_lineno}: Tensor.to of a device")
        return to(self, *args, **kwargs)

    return careful


def made(tensor):
    """Return `torch.tensor`, which refuses a device, since it copies there as `Tensor.to` does."""

    def careful(*args, device=None, **kwargs):
        if device is not None:
            raise WaitsError("torch.tensor on a device")
        return tensor(*args, **kwargs)

    return careful


@contextlib.contextmanager
def no_waiting(monkeypatch):
    """Refuse inside the block what makes the host wait, but for what is read one step later on purpose."""
    with monkeypatch.context() as only, Device():
        for name in READING:

            def refuse(self, *_, name=name, **__):
                raise WaitsError(f"Tensor.{name}")

            only.setattr(torch.Tensor, name, refuse)
        only.setattr(torch.Tensor, "to", sent(torch.Tensor.to))
        only.setattr(torch, "tensor", made(torch.tensor))
        # On CPUs it looks at the values first, on GPUs it does not.
        only.setattr(functional, "one_hot", lambda rows, size: rows[..., None] == torch.arange(size))
        yield


class Enough(BaseException):
    """Ends the body of a stage after its updates."""


def updates(stage, item, on, monkeypatch):
    """Return what was wrong with a training's updates, by what; {} where it was as it should be, None: none ran."""
    wrong = None

    def loop(recipe, settings, run, places):
        nonlocal wrong
        wrong = {}
        # Few images: CPUs without instructions for bfloat16 are slow, and no wait is by the size of a batch.
        shorter = {"images": 64 * 16, "batch": 16, "warmup": 0}
        settings = settings.model_copy(update={**shorter, "precision": "bf16"})
        trainer = open_training(recipe, settings, run, places)
        trainer.finite._deferred = True  # as on a GPU
        recipe.merge = False  # CLIP's count of captions
        steps = endless(trainer, first_image(recipe, settings))
        trainer.step(next(steps))
        batch = next(steps)
        try:
            with no_waiting(monkeypatch):
                trainer.step(batch)
        except WaitsError as error:
            wrong["waits"] = str(error)
        dtypes = {p.dtype for module in trainer.modules.values() for p in module.parameters()}
        if dtypes != {torch.float32}:
            wrong["weights"] = str(dtypes)
        captured = []

        def backend(graph, inputs):
            captured.append(graph)
            return graph.forward

        for phase in recipe.phases:
            recipe.modules[phase.module].compile(fullgraph=True, dynamic=False, backend=backend)
        try:
            trainer.step(next(steps))
        except Exception as error:
            wrong["graph"] = f"{type(error).__name__}: {error}"[:400]
        if not captured:
            wrong["graph"] = "nothing was captured"
        raise Enough

    monkeypatch.setattr(precision.Finite, "settle", lambda self, images: None)  # it reads what is one step old
    monkeypatch.setattr(Codebook, "expire_codes_", lambda self, *_, **__: None)
    enter(on.folder, download=False)
    params = validate(schema(stage), stage_params(stage, item or None))
    body = importlib.import_module(f"darkroom.stages.{stage}").run
    with contextlib.suppress(Enough):
        body(params, *filter(None, [item]), train=loop)
    torch._dynamo.reset()
    return wrong


def found_in(names, folder, monkeypatch):
    """Run stages in miniature, and return what is wrong with the updates of those that train."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr("darkroom.tools.plan.rehearsal.BUDGET", 0.0)
    found = {}
    with scratch() as copy:
        on = Miniature(copy, count_images(set(names)))
        for name in names:
            stage, _, item = name.partition("@")
            if stage in TRAININGS:
                with chdir(folder):
                    found[name] = updates(stage, item, on, monkeypatch)
            if name != names[-1]:  # no later stage reads what that one writes
                with chdir(folder):
                    assert rehearse(name, on).source in ("measured", "skipped"), name
    return found


TRAINED = (
    *("train_teacher", "train_tokenizer", "train_extractor", "train_generator", "train_classifier", "train_clip"),
    *("train_decoder@base", "train_decoder@up", "train_prior"),
)


@pytest.mark.slow
def test_no_training_of_the_dag_waits_for_its_device(clone, monkeypatch):  # noqa: F811
    change(clone, "train_tokenizer", "kl", "perceptual", value={"network": "teacher", "weight": 0.1})
    change(clone, "sample_generator", "dit", "classifier", value="models/classifier")
    needed = [name for name in KNOWN if not name.startswith(("score", "sample", "report", "reference"))]
    found = found_in(needed, clone, monkeypatch)
    assert found.pop("train_scene_reader") is None  # these are no scenes
    assert found.pop("train_distilled") is None  # nothing guided by a classifier is distilled
    assert found == {name: {} for name in TRAINED}


@pytest.mark.slow
def test_no_distillation_waits_for_its_device(clone, monkeypatch):  # noqa: F811
    change(clone, "train_distilled", "kind", value="dit")
    needed = ["ingest@first", "ingest@second", "catalog", "train_teacher", "train_tokenizer"]
    needed += ["encode_latents@first", "encode_latents@second", "train_generator", "train_distilled"]
    assert found_in(needed, clone, monkeypatch)["train_distilled"] == {}


def test_no_tokenizer_waits_for_its_device(clone, monkeypatch):  # noqa: F811
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    needed, kinds, found = ["ingest@first", "ingest@second", "catalog"], ["dvae", "vqgan", "vq_ar"], {}
    with scratch() as copy, chdir(clone):
        on = Miniature(copy, count_images({*needed, "train_tokenizer"}))
        for name in needed:
            assert rehearse(name, on).source == "measured", name
        for kind in kinds:
            change(clone, "train_tokenizer", "kind", value=kind)
            found[kind] = updates("train_tokenizer", "", on, monkeypatch)
    assert found == {kind: {} for kind in kinds}
