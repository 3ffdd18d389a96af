"""Check the clone and the machine: code, git, parameters, leftovers of killed processes, device, cores, disk."""

import contextlib
import fcntl
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from darkroom.check.check import check, check_sources
from darkroom.dag.lock_file import damage
from darkroom.dag.records import HOLDERS, is_locked, recorded
from darkroom.dag.records import LOCK as LOCK_FILE
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import lookup, read_yaml
from darkroom.terminal.numbers import bytes_of
from darkroom.tools.compare.revisions import git as asked
from darkroom.tools.cores import core_count
from darkroom.tools.doctor.packages import Finding, note, ok, problem
from darkroom.training.state import FINISHED, LOCK, root, stable_root

LOCKS = Path(".snakemake/locks")
NEEDED, SCARCE = 1e9, 10e9  # free bytes that the demo needs, and that larger work may need


def code() -> Iterator[Finding]:
    """Check that the running code is that of this folder."""
    source, here = Path(__file__).resolve(), Path.cwd().resolve()
    if here in source.parents:
        yield ok("code", f"of this checkout, {here}")
    else:
        yield problem("code", f"{source.parents[4]} runs, not {here}: run in the clone, with PYTHONPATH=src.")


def git() -> Iterator[Finding]:
    """Check for git, a repository, and a git identity: `dvc exp` makes commits."""
    if shutil.which("git") is None:
        yield problem("git", "git is not installed, and DVC needs it.")
        return
    if asked("rev-parse", "--show-toplevel"):
        yield ok("git", (asked("--version") or "").strip())
    else:
        yield problem("git", "this folder is not a git clone, which DVC needs: `git init && git add . && git commit`.")
    for key in ("name", "email"):
        given = [os.environ.get(f"GIT_{role}_{key.upper()}") for role in ("AUTHOR", "COMMITTER")]
        if not (asked("config", f"user.{key}") or "").strip() and not all(given):
            remedy = f'`git config user.{key} "…"`'
            yield problem("git identity", f"user.{key} is not set, and `dvc exp run` commits: {remedy}.")


def parameters() -> Iterator[Finding]:
    """Check params.yaml and dvc.yaml."""
    try:
        yield ok("params.yaml", f"{check(counted=True)}{check_sources()}")
    except DarkroomError as error:
        for line in str(error).splitlines():
            yield problem("params.yaml", line)


def lock_file() -> Iterator[Finding]:
    """Check that dvc.lock is complete, and has no merge markers."""
    try:
        reason = damage()
    except DarkroomError as error:
        yield problem("dvc.lock", str(error))
        return
    if reason is not None:
        yield problem("dvc.lock", f"it {reason}: `darkroom check` restores the last complete version.")
    elif LOCK_FILE.is_file():
        yield ok("dvc.lock", f"complete, {len(recorded())} stages")
    else:
        yield ok("dvc.lock", "none yet: the first finished stage writes it")


def remotes() -> Iterator[Finding]:
    """Check that DVC compares the downloads from each remote with their hashes."""
    from darkroom.dag import repo

    try:
        known = repo.remotes()
    except DarkroomError as error:
        yield problem("remotes", f"{error}.")
        return
    for name, (verified, shared) in known.items():
        if not verified:
            command = f"`dvc remote modify {'' if shared else '--local '}{name} verify true`"
            yield note("remotes", f"`dvc pull` does not check objects of {name} for damage: {command} enables it.")
    if all(verified for verified, _ in known.values()):
        yield ok("remotes", f"{', '.join(known)}: `dvc pull` compares hashes" if known else "no DVC remotes")


def locks() -> Iterator[Finding]:
    """Check for Snakemake locks: those of a killed process block the next run."""
    held = sorted(LOCKS.glob("*")) if LOCKS.is_dir() else []
    if held:
        yield note("locks", f"{LOCKS} has {len(held)}: if Snakemake is not running, `snakemake --unlock` removes them.")
    else:
        yield ok("locks", "no Snakemake locks")


def _state(path: Path) -> os.stat_result:
    """Return the size and times of a file of another process; those of the folder if it has just been removed."""
    try:
        return path.stat()
    except FileNotFoundError:
        return path.parent.stat()


def nodes(count: int, seconds: float = 60.0) -> Iterator[Finding]:
    """Check that a lock in this folder holds on other nodes; all of them run this at the same time.

    Each process locks a file, waits until there are `count`, and looks whether the others are locked.
    """
    folder = HOLDERS.with_name("nodes")
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{platform.node()}-{secrets.token_hex(4)}"
    end, others = time.monotonic() + seconds, list[Path]()
    for path in folder.iterdir():
        if time.time() - _state(path).st_mtime > seconds:
            path.unlink(missing_ok=True)  # of a killed process
    with (hidden := own.with_name(f".{own.name}")).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        hidden.rename(own)
        try:
            while len(others) + 1 < count and time.monotonic() < end:
                time.sleep(0.1)
                others = [path for path in folder.glob("[!.]*") if path != own]
            unlocked = [path.name for path in others if not _is_locked(path)]
            print("looked", file=file, flush=True)
            while any(path.exists() and not _state(path).st_size for path in others) and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            own.unlink(missing_ok=True)
    if len(others) + 1 < count:
        remedy = "start all at the same time, with the same `--nodes`"
        yield problem("nodes", f"{len(others) + 1} of {count} started within {seconds:.0f} s: {remedy}.")
    elif unlocked:
        remedy = "mount the folder with locks (NFS: without `nolock`; Lustre: with `flock`), or run on one node"
        yield problem("nodes", f"locks of {', '.join(unlocked)} do not reach {platform.node()}: {remedy}.")
    else:
        yield ok("nodes", f"{platform.node()} sees the locks of all {count} processes")


def _is_locked(path: Path) -> bool:
    """Return whether a process keeps a file locked; if that is unknown, it counts as locked."""
    with contextlib.suppress(OSError):
        return is_locked(path)
    return True


def _size(folder: Path) -> str:
    return bytes_of(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))


def states() -> Iterator[Finding]:
    """List the states of interrupted trainings, damaged checkpoints, and states that longer trainings start from."""
    for folder in sorted(folder for folder in stable_root().glob("*") if folder.is_dir()):
        yield note("states", f"{folder}: {_size(folder)}; a longer training starts from it; otherwise remove it.")
    folders = sorted(folder for folder in root().glob("*") if folder.is_dir())
    if not folders:
        yield ok("states", "no interrupted trainings")
    for folder in folders:
        images = max((int(name.name.rpartition("-")[2]) for name in folder.glob("images-*")), default=0)
        stage = folder.name.rpartition("-")[0].replace("-", "@", 1)  # STAGE-KEY or STAGE-ITEM-KEY
        status = f"`dvc repro {stage}` continues it if its parameters are unchanged; otherwise remove the folder"
        if _is_locked(folder / LOCK):
            status = "training is running"
        elif (folder / FINISHED).is_file():
            status = "finished: removed once dvc.lock records the result and a stage starts"
        yield note("states", f"{folder}: {images:,} images, {_size(folder)}; {status}.")
        for aside in sorted([*folder.glob("code-*"), *folder.glob("damaged-*")]):
            kind = "checkpoints from other code" if aside.name.startswith("code-") else "a damaged checkpoint"
            yield note("states", f"{aside}: {kind}, {_size(aside)}; remove it if you do not need it.")


def devices() -> Iterator[Finding]:
    """List the devices that torch can use, and check `run.device`."""
    try:
        import torch
    except Exception:  # `torch_pair` reports the error
        return
    yield ok("cpu", f"{core_count()} cores, torch's kernels for {torch.backends.cpu.get_cpu_capability()}")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    for number in range(torch.cuda.device_count() if cuda else 0):
        gpu, (free, total) = torch.cuda.get_device_properties(number), torch.cuda.mem_get_info(number)
        bf16 = "computes in bf16" if torch.cuda.is_bf16_supported(False) else "no bf16: use `precision: fp16`"
        yield ok("cuda", f"{number}: {gpu.name}, {bytes_of(free)} of {bytes_of(total)} free, {bf16}")
    if not cuda and shutil.which("nvidia-smi"):
        yield note("cuda", "there is an NVIDIA driver, but torch sees no device: its build or the driver is too old.")
    device = "auto"
    with contextlib.suppress(DarkroomError):  # `parameters` reports the error
        device = str(lookup(read_yaml(PARAMS), "run.device"))
    kind, colon, index = device.partition(":")
    is_known = not colon or (index.isdigit() and int(index) < torch.cuda.device_count())
    available = {"auto": True, "cpu": True, "cuda": cuda, "mps": mps}.get(kind, False)
    if not available or not is_known:
        yield problem("device", f"`run.device` is {device}, but torch sees no such device: use auto or cpu.")
    else:
        chosen = kind if kind != "auto" else "cuda" if cuda else "mps" if mps else "cpu"
        yield ok("device", f"`run.device` is {device}: stages run on {chosen}")


def _cache() -> Path | None:
    """Return the folder of the DVC cache; None if DVC fails."""
    try:
        from darkroom.dag.repo import cache_folder

        return cache_folder()
    except Exception:  # the findings on the clone report errors of git or DVC
        return None


def disk() -> Iterator[Finding]:
    """Check the free disk space where stages write: the checkout, DVC's cache, the states of trainings."""
    for subject, folder in {"disk": Path(), "disk of cache": _cache(), "disk of state": root()}.items():
        if folder is None:
            yield note(subject, "DVC does not report the location of its cache.")
            continue
        place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        free = shutil.disk_usage(place).free
        text = f"{bytes_of(free)} free in {place}"
        if not os.access(place, os.W_OK):
            yield problem(subject, f"{place} is not writable: change its permissions, or clone to another folder.")
        elif free < NEEDED:
            yield problem(subject, f"{text}: free at least {bytes_of(NEEDED)}; `dvc gc --workspace` helps.")
        elif free < SCARCE:
            yield note(subject, f"{text}: enough for the demo; `darkroom plan` shows what your parameters need.")
        else:
            yield ok(subject, text)
