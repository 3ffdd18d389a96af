"""Keep the measured plans of stages, so that another command does not measure the same again."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_json
from darkroom.dag.fingerprint.stages import SOURCE
from darkroom.errors import DarkroomError
from darkroom.processes import gpus
from darkroom.runner import machine, params_key
from darkroom.tools.cores import core_count
from darkroom.tools.plan.table import SKIPPED, StagePlan

_STORE = Path("logs/plans.json")
_MOST = 500  # plans that are kept, the latest
EARLIER = "earlier plan"  # the source of a stored plan


def keys(needs: Mapping[str, Iterable[str]], params: Mapping[str, Any], parts: Any) -> dict[str, str]:
    """Return the key of each stage's plan: all that it depends on but the content of the images.

    That is this machine and what may be used of it, torch, the source code, the numbers of images, and the parameters
    of the stage and those above it.
    """
    files = sorted(SOURCE.rglob("*.py"))
    code = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    own = {name: params_key(params[name]) for name in needs}
    here = [machine(), core_count(), str(gpus.present()), version("torch")]
    common = json.dumps([here, code, parts], sort_keys=True)
    above = {name: sorted((each, own[each]) for each in names) for name, names in needs.items()}
    return {name: sha256(json.dumps([common, name, own[name], above[name]]).encode()).hexdigest() for name in needs}


def stored() -> dict[str, StagePlan]:
    """Return the stored plans by key; a damaged file counts as empty."""
    with suppress(OSError, ValueError, TypeError):
        return {key: StagePlan(**values) for key, values in json.loads(_STORE.read_text())}
    return {}


def store(plans: Mapping[str, StagePlan]) -> None:
    """Add plans by key, the latest last, without what depends on the state of the DAG."""
    if not plans:
        return
    new = {
        key: replace(plan, source=SKIPPED if plan.source == SKIPPED else EARLIER, wall=0.0, work=0.0)
        for key, plan in plans.items()
    }
    kept = [(key, plan) for key, plan in stored().items() if key not in new]
    with suppress(OSError, DarkroomError):  # without it, the next plan measures again
        _STORE.parent.mkdir(exist_ok=True)
        write_json(_STORE, [(key, asdict(plan)) for key, plan in [*kept, *new.items()][-_MOST:]])
