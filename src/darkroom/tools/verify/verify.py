"""`darkroom verify`: checks the data and every output byte by byte, and reports every error, not only the first."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from typer import Argument, Option

from darkroom.remote import is_remote
from darkroom.terminal.numbers import counted
from darkroom.tools.verify.outputs import Cache, Output, check_output, recorded_outputs
from darkroom.tools.verify.problems import Problem, left_over, lines, read_parts
from darkroom.tools.verify.tars import check_in_place, in_place


def verify(
    names: Annotated[
        list[str] | None, Argument(metavar="PART", help="parts of params.yaml; default: all, and all outputs")
    ] = None,
    also_remote: Annotated[bool, Option("--remote", help="also read tars behind URLs")] = False,
) -> bool:
    """Check the outputs and the tars that are indexed in place, and print the errors; return whether there is none.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
    """
    names = names or []
    parts, chosen = read_parts(names)
    faults = _check_outputs([each for each in recorded_outputs() if not names or each.stage.partition("@")[2] in names])
    for name in chosen:
        if tars := in_place(name):
            read = {tar: facts for tar, facts in tars.items() if also_remote or not is_remote(tar)}
            skipped = len(tars) - len(read)
            text = f", {counted(skipped, 'remote tar')} not read (`--remote` reads them)" if skipped else ""
            faults += _print(f"{name}: {counted(len(read), 'tar')} indexed in place{text}", check_in_place(name, read))
    if gone := left_over(parts):
        print(f"{', '.join(gone)}: of no part in params.yaml; nothing reads it, remove it.")
    return not faults


def _check_outputs(outputs: Sequence[Output]) -> int:
    """Check outputs, print a line for them and for each error, and return the number of errors."""
    if not outputs:
        print("outputs: none in dvc.lock, as no stage has run")
        return 0
    cache = Cache()
    missing = [output for output in outputs if cache.never_had(output)]
    present = [output for output in outputs if output not in missing]
    with ThreadPoolExecutor() as pool:
        checks = pool.map(lambda output: check_output(output, cache), present)
        faults = _print(f"outputs: {len(present)} of dvc.lock", [fault for found in checks for fault in found])
    if missing:
        stages = ", ".join(dict.fromkeys(output.stage for output in missing))
        print(f"  not made here, so not checked: {stages}; `dvc repro` makes them, or `dvc pull` fetches them.")
    return faults


def _print(line: str, faults: Sequence[Problem]) -> int:
    """Print what was checked and its errors, and return the number of errors."""
    print(f"{line}: {counted(len(faults), 'fault') if faults else 'sound'}")
    for text in lines(faults):
        print(f"  {text}")
    return len(faults)
