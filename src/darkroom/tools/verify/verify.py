"""`darkroom verify`: check the data and every output byte by byte, and report all errors."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from typer import Argument

from darkroom.artifacts.manifest import ArtifactError, check_seal, read_manifest, sha256_file
from darkroom.dag.records import busy
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.params.parts import Parts
from darkroom.params.section import PARAMS, Section, validate
from darkroom.params.stage import lookup, read_yaml
from darkroom.remote import is_remote, local_path
from darkroom.terminal.numbers import counted
from darkroom.terminal.terminal import with_progress
from darkroom.tools import command, nearest
from darkroom.tools.verify.outputs import Cache, Output, Problem, check_output, recorded_outputs

_WORKERS = 8  # tars that are read at once; hashing releases the interpreter lock


class _Params(Section):
    parts: Parts


def read_parts(names: Sequence[str]) -> list[str]:
    """Return the parts of params.yaml in `names`; all parts if `names` is empty.

    Raises:
        DarkroomError: params.yaml is missing or not valid, or has no such part; the message suggests the nearest name.
    """
    parts = list(validate(_Params, {"parts": lookup(read_yaml(PARAMS), "parts")}).parts)
    for name in names:
        if name not in parts:
            raise DarkroomError(f"{PARAMS} has no part `{name}`; {nearest(name, parts, 'it has')}")
    return [part for part in parts if not names or part in names]


@command("Data", "verify", "Check the data and every output in dvc.lock byte by byte.")
def verify(
    names: Annotated[
        list[str] | None, Argument(metavar="PART", help="parts of params.yaml; default: all, and all outputs")
    ] = None,
) -> bool:
    """Check the outputs and the tars indexed in place, and print the errors; return whether there are none.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
    """
    names = names or []
    chosen = read_parts(names)
    faults = _check_outputs([each for each in recorded_outputs() if not names or each.stage.partition("@")[2] in names])
    for name in chosen:
        if tars := in_place(name):
            read = {tar: sha256 for tar, sha256 in tars.items() if not is_remote(tar)}
            skipped = len(tars) - len(read)
            text = f", {counted(skipped, 'remote tar')} not read: they are checked when fetched" if skipped else ""
            faults += _print(f"{name}: {counted(len(read), 'tar')} indexed in place{text}", check_in_place(name, read))
    return not faults


def _check_outputs(outputs: Sequence[Output]) -> int:
    """Check outputs, print a line for them and for each error, and return the number of errors."""
    if not outputs:
        print("outputs: none in dvc.lock, because no stage has run")
        return 0
    cache, written = Cache(), busy()
    unfinished = [output for output in outputs if str(output.path.absolute()) in written]
    missing = [output for output in outputs if output not in unfinished and cache.never_had(output)]
    present = [output for output in outputs if output not in [*unfinished, *missing]]
    with ThreadPoolExecutor() as pool:
        checks = pool.map(lambda output: check_output(output, cache), present)
        faults = _print(f"outputs: {len(present)} of dvc.lock", [fault for problems in checks for fault in problems])
    if unfinished:
        stages = ", ".join(dict.fromkeys(output.stage for output in unfinished))
        print(f"  not checked, because a running stage writes them: {stages}.")
    if missing:
        lacking = list(dict.fromkeys(output.stage for output in missing))
        listed = ", ".join(lacking) if len(lacking) < 6 else counted(len(lacking), "stage")
        print(f"  not in this clone, so not checked: {listed}. Run `dvc repro` or `dvc pull`.")
    return faults


def _print(line: str, faults: Sequence[Problem]) -> int:
    """Print what was checked and its errors, and return the number of errors."""
    print(f"{line}: {counted(len(faults), 'error') if faults else 'ok'}")
    for fault in faults:
        print(f"  {fault}")
    return len(faults)


def in_place(name: str) -> dict[str, str]:
    """Return the SHA-256 of the tars of a part that is indexed in place, by path or URL.

    Empty if its images are stored, or if its manifest is damaged, which the check of the outputs reports.
    """
    try:
        check_seal(SHARDS / name)
        manifest = read_manifest(SHARDS / name, KIND)
    except ArtifactError:
        return {}
    splits = SPLITS if manifest["in_place"] else ()
    return {entry["tar"]: entry["sha256"] for split in splits for entry in manifest["splits"][split]["shards"]}


def check_in_place(name: str, tars: Mapping[str, str]) -> list[Problem]:
    """Return the errors of tars of a part, and report progress."""
    remedy = f"it changed since it was indexed; put the old file back, or index it again with `dvc repro ingest@{name}`"
    with ThreadPoolExecutor(_WORKERS) as pool:
        checks = pool.map(lambda tar: _check(tar, tars[tar], remedy), tars)
        each = with_progress(([problems] for problems in checks), len(tars), name, "tars")
        return [problem for (problems,) in each for problem in problems]


def _check(tar: str, expected: str, remedy: str) -> list[Problem]:
    try:
        damaged = sha256_file(local_path(tar)) != expected
        return [Problem(tar, "is damaged: its sha256 differs from the manifest", remedy)] * damaged
    except FileNotFoundError:
        return [Problem(tar, "is missing", remedy)]
    except OSError as error:
        return [Problem(tar, "cannot be read", remedy, detail=str(error))]
