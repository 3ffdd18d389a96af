"""Stage `code`: write `build/code/`, a fingerprint of the code that each stage runs."""

import gc

from darkroom.artifacts.atomic import atomic_folder, write_json
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.stages import OUT, SOURCE, STAGE, fingerprints, undeclared
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.ingest import CodeParams
from darkroom.params.stage import DVC, read_yaml


def run(params: CodeParams) -> None:
    """Write the fingerprints that the other stages depend on.

    Raises:
        DarkroomError: dvc.yaml does not list one that a stage needs, or a module is not valid Python.
    """
    gc.disable()  # the collection of cycles would take a third of the time
    stages = [stage for stage in STAGES if stage != STAGE]
    sources = Sources(SOURCE)
    if missing := undeclared(stages, read_yaml(DVC), sources):
        raise DarkroomError("\n".join(missing))
    code = fingerprints(stages, params.model_dump(), sources)
    gc.enable()
    with atomic_folder(OUT) as temporary:
        for name, fingerprint in code.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            write_json(temporary / f"{name}.json", fingerprint)
    print(f"{len(code)} fingerprints")
