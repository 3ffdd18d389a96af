"""Stage `code`: write `build/code/`, a fingerprint of the code that each stage runs."""

from darkroom.dag.fingerprint.stages import STAGE, undeclared, write_code
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.ingest import CodeParams
from darkroom.params.stage import DVC, read_yaml


def run(params: CodeParams) -> None:
    """Write the fingerprints that the other stages depend on.

    Raises:
        DarkroomError: dvc.yaml does not list one that a stage needs.
    """
    stages = [stage for stage in STAGES if stage != STAGE]
    if missing := undeclared(stages, read_yaml(DVC)):
        raise DarkroomError("\n".join(missing))
    print(f"{write_code(stages, params.model_dump())} fingerprints")
