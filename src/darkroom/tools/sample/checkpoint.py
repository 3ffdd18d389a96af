"""The network of a checkpoint, and its manifest: models/generator is gone until its training has ended."""

# No effect on any output: reads the state of a training

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import GENERATOR
from darkroom.errors import DarkroomError
from darkroom.params.section import validate
from darkroom.training.state import PARAMETERS, identity, key, running_parameters

_STAGE = "train_generator"


def state_of(weights: str | None) -> Path | None:
    """Return the state of the training that a path of weights lies in; None: it lies in none."""
    folders = Path(weights).absolute().parents if weights and Path(weights).exists() else []
    return next((each for each in folders if each.name.startswith(_STAGE) and (each / PARAMETERS).is_file()), None)


def write_untrained(state: Path) -> Path:
    """Write the untrained network of a training and its manifest into its state, and return the folder.

    Raises:
        DarkroomError: the training had other inputs than there are now.
    """
    import torch

    from darkroom.models.generators.settings import Params
    from darkroom.stages.train_generator import Inputs, untrained

    values = running_parameters(state)
    params = {name: value for name, value in values.items() if name != "run"}
    if not state.name.endswith(key({**identity(_STAGE), "params": params})):
        raise DarkroomError(
            f"{state} is of a training with another tokenizer, or on other data, than there are now: restore them with "
            "`git checkout` and `dvc checkout`."
        )
    recipe, facts = untrained(validate(Params, values), Inputs.open(), torch.device("cpu"))
    with atomic_folder(state / "untrained") as folder:
        recipe.save(folder)
        write_manifest(folder, GENERATOR, **facts, images_seen=0, files=file_hashes(folder))
    return state / "untrained"
