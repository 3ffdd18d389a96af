"""Collect and print the findings of `darkroom doctor`."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from typer import Option

from darkroom.tools import command
from darkroom.tools.doctor import packages
from darkroom.tools.doctor.packages import Finding, ok, problem


def lines(findings: Iterable[Finding]) -> str:
    """Format the findings as aligned lines."""
    rows = list(findings)
    width = max((len(row.subject) for row in rows), default=0)
    return "\n".join(f"{row.level:<5}  {row.subject:<{width}}  {' '.join(row.text.split())}" for row in rows)


def findings() -> Iterator[Finding]:
    """Yield all findings, from the installation up: an error may explain later ones."""
    for check in (packages.python, packages.pinned, packages.engines):
        yield from check()
    try:
        from darkroom.dag.records import engine_runs
        from darkroom.tools.doctor import clone
    except ModuleNotFoundError as error:
        yield problem("darkroom", f"{error.name} is missing, so the other checks cannot run.")
        return
    if engine_runs():
        yield ok("torch", "not loaded, and devices not checked, because stages are running in this checkout")
    else:
        yield from packages.torch_pair()
        yield from clone.devices()
    for check in (clone.disk, clone.code, clone.git, clone.parameters, clone.lock_file):
        yield from check()
    for check in (clone.remotes, clone.locks, clone.states):
        yield from check()


@command("Environment", "doctor", "Check the installation and this clone, and suggest fixes.")
def doctor(
    nodes: Annotated[
        int, Option(min=1, help="test only whether locks hold between this many nodes, which all run this now")
    ] = 1,
) -> tuple[str, bool]:
    """Return all findings as lines, and whether they include no error."""
    if nodes > 1:
        from darkroom.tools.doctor import clone

        print(f"waiting up to a minute for {nodes} processes …", flush=True)
        results = list(clone.nodes(nodes))
    else:
        results = list(findings())
    return lines(results), all(finding.level != "fault" for finding in results)
