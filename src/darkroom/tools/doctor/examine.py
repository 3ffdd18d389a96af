"""The findings of `darkroom doctor`, in order: one line each."""

from collections.abc import Iterator
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.tools.doctor.findings import Finding, lines, problem


def _params() -> dict[str, Any] | None:
    """Return params.yaml with its defaults; None where it is not valid, which `clone.parameters` reports."""
    from darkroom.check.check import check, read_params

    try:
        check()
        return read_params()
    except DarkroomError:
        return None


def findings() -> Iterator[Finding]:
    """Yield all findings, from the installation up: an error may explain later ones."""
    from darkroom.tools.doctor import packages

    yield from packages.python()
    yield from packages.pinned()
    yield from packages.torch_pair()
    yield from packages.engines()
    try:
        from darkroom.tools.doctor import clone, machine
    except ModuleNotFoundError as error:
        yield problem("darkroom", f"it needs {error.name}, which is missing: the rest cannot be checked.")
        return
    params = _params()
    yield from packages.compiler(params)
    yield from machine.devices(params)
    yield from machine.cores_asked(params)
    yield from machine.disk()
    yield from clone.code()
    yield from clone.git()
    yield from clone.parameters()
    yield from clone.lock_file()
    yield from clone.cache()
    yield from clone.remotes()
    yield from clone.locks()
    yield from clone.states()


def doctor() -> tuple[str, bool]:
    """Return all findings as lines, and whether there is no error among them."""
    found = list(findings())
    return lines(found), all(finding.level != "fault" for finding in found)
