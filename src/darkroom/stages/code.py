"""Stage `code`: the source in, `build/code/` out, a fingerprint of the code that each stage runs."""

from darkroom.errors import DarkroomError
from darkroom.fingerprint.stages import STAGE, undeclared, write_code
from darkroom.params import DVC, read_yaml
from darkroom.schemas.code import Params
from darkroom.stages import STAGES


def run(params: Params) -> None:
    """Write the fingerprints that the other stages depend on.

    Raises:
        DarkroomError: dvc.yaml does not name one that a stage needs.
    """
    stages = [stage for stage in STAGES if stage != STAGE]
    if missing := undeclared(stages, read_yaml(DVC)):
        raise DarkroomError("\n".join(missing))
    print(f"{write_code(stages, params.model_dump())} fingerprints")
