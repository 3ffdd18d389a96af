"""Kills trainings until a number of kills is reached, damages their checkpoints, fills their disk, and compares.

`PYTHONPATH=src:tests python -m torture`, or `make torture`. Exit status 1 where one byte differs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from torture.arguments import Arguments
from torture.disk import fill_the_disk, small_disk
from torture.faults import POINTS
from torture.lives import Forked, Fresh, fork_server
from torture.story import Start, Story, left_alone
from torture.tally import KINDS, ORPHANS, Tally
from torture.tokenizers import MODELS as TOKENIZERS

_INSIDE = "DARKROOM_TORTURE_INSIDE"


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--gan", type=int, default=60, help="kills of the GAN")
    parser.add_argument("--dit", type=int, default=40, help="kills of the DiT")
    parser.add_argument("--tokenizers", type=int, default=20, help="kills of each kind of tokenizer")
    parser.add_argument("--updates", type=int, default=400, help="of each training, of a tokenizer a quarter")
    parser.add_argument("--kills", type=int, default=10, help="of one training, at most")
    parser.add_argument("--seed", type=int, default=0, help="of all instants")
    parser.add_argument("--json", type=Path, help="write the tally there, too")
    parser.add_argument("--folder", type=Path, help="an empty folder for all that is made, which stays")
    return parser.parse_args()


def enter_namespace() -> None:
    """Start this program again where it may mount a small disk, without rights and without a trace, if it can."""
    if _INSIDE in os.environ or shutil.which("unshare") is None:
        return
    os.environ[_INSIDE] = "1"
    # A mount namespace of its own, and a user namespace for those who are not root.
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0:
        os.execvp("unshare", ["unshare", "-rm", sys.executable, "-m", "torture", *sys.argv[1:]])


def whole_run(asked: argparse.Namespace, folder: Path) -> Tally:
    """Do everything below `folder`, two processes at a time."""
    tally = Tally()
    arguments = {
        model: Arguments(model, str(folder / f"{model}-whole"), str(folder / "data"), asked.updates)
        for model in ("gan", "dit", "latents")
    }
    arguments |= {
        kind: Arguments(kind, str(folder / f"{kind}-whole"), str(folder / "data"), asked.updates // 4)
        for kind in TOKENIZERS
        if asked.tokenizers
    }
    with ThreadPoolExecutor(2) as pool:
        fresh = pool.submit(left_alone, Fresh, arguments["gan"])
        with fork_server(folder) as address:
            start = partial(Forked, address)
            left_alone(start, arguments["latents"])
            left_alone(start, arguments["dit"])
            alone = [pool.submit(left_alone, start, arguments[kind]) for kind in TOKENIZERS if kind in arguments]
            for each in (fresh, *alone):
                each.result()
            todo = [pool.submit(damage, start, arguments["gan"], asked, tally)]
            todo += [pool.submit(disk, start, arguments["gan"], asked, tally)]
            del arguments["latents"]
            todo += [pool.submit(kill, start, each, asked, tally) for each in arguments.values()]
            for each in todo:
                each.result()
    alive = [each for each in psutil.wait_procs(tally.orphans, timeout=ORPHANS)[1] if not _is_zombie(each)]
    if alive:
        tally.fault(f"{len(alive)} workers go on {ORPHANS} s after their trainer: {alive}")
    if tally.counts["kills"] > 50 and not tally.counts["orphans"]:  # few kills may all come while no worker runs
        tally.fault("no kill came while a trainer had workers")
    return tally


def _is_zombie(process: psutil.Process) -> bool:
    """Return whether a process has ended, and waits for an init that some containers lack."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _story(
    start: Start, whole: Arguments, asked: argparse.Namespace, tally: Tally, name: str, state: str | None = None
) -> Story:
    folder = Path(whole.folder).with_name(f"{whole.model}-{name}")
    told = replace(whole, folder=str(folder), state=state)
    return Story(start, told, Path(whole.folder), tally, f"{asked.seed}-{folder.name}")


def kill(start: Start, whole: Arguments, asked: argparse.Namespace, tally: Tally) -> None:
    """Kill trainings of one model until there were as many kills as asked for."""
    died = number = 0
    wanted = asked.tokenizers if whole.model in TOKENIZERS else getattr(asked, whole.model)
    while died < wanted:
        story = _story(start, whole, asked, tally, f"killed-{number}")
        died += story.kills(min(asked.kills, wanted - died))
        # A new interpreter imports for seconds: GAN and DiT show in `make torture` that it makes no difference.
        story.finish(Fresh if number % 3 == 2 and whole.model not in TOKENIZERS else None)
        number += 1
    tally.add(**{f"kills_{whole.model}": died})


def damage(start: Start, whole: Arguments, asked: argparse.Namespace, tally: Tally) -> None:
    """Crash a training at every point of a save, and flip bits between its lives."""
    story = _story(start, whole, asked, tally, "damaged")
    for point in POINTS:
        story.crash(point)
    story.flip("modules.safetensors")
    story.flip("optimizers.safetensors")
    story.flip("manifest.json", r"(?<=\.)\d{3}")  # it stays JSON, of another loss
    story.flip("manifest.json", '(?<=")files')  # a name that is asked for
    story.finish()


def disk(start: Start, whole: Arguments, asked: argparse.Namespace, tally: Tally) -> None:
    """Fill the disk of a training, where a small disk can be had."""
    mount = Path(whole.folder).with_name("small-disk")
    try:
        with small_disk(mount):
            fill_the_disk(_story(start, whole, asked, tally, "disk", str(mount / "state")))
    except OSError as error:
        tally.disk = f"skipped: no small disk can be mounted here ({error})"


def _each(count: Mapping[str, int]) -> list[str]:
    """Return how many kills each model had."""
    return [f"{value} {name.removeprefix('kills_')}" for name, value in count.items() if name[:6] == "kills_" and value]


def table(tally: Tally, seconds: float) -> str:
    """Return what happened, for a person."""
    count = tally.counts
    rows = [
        ("SIGKILLs", f"{count['kills']}: {', '.join(_each(count))}"),
        ("  of which during a save", f"{count['during_a_save']}, while pruning {count['while_pruning']}"),
        ("  workers they orphaned", f"{count['orphans']}, all gone soon after"),
        ("trainings, resumes", f"{count['trainings']}, {count['resumes']}"),
        ("images, of which repeated", f"{count['images']:,}, {count['repeated']:,}"),
        ("losses, of which differ", f"{count['losses']:,}, {count['wrong_losses']}"),
        *((f"bytes of {name} that differ", f"{tally.differing[name]}") for name in [*dict.fromkeys(KINDS.values())]),
        ("bytes of other state that differ", f"{tally.differing['other state']}"),
        *((f"crash: {point}", said) for point, said in tally.crashes.items()),
        *(("flipped bit", said) for said in tally.flips),
        ("full disk", tally.disk),
        ("minutes", f"{seconds / 60:.1f}"),
    ]
    return "\n".join([*(f"{name:<36}{value}" for name, value in rows), *(f"WRONG: {each}" for each in tally.faults)])


def main() -> int:
    """Run it all in a temporary folder, print the table, and return the exit status."""
    asked = options()
    enter_namespace()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:  # short: a socket's path has 108 characters at most
        tally = whole_run(asked, asked.folder or Path(folder))
    print(f"seed {asked.seed}\n{table(tally, time.monotonic() - began)}")
    if asked.json:
        metadata = {
            name: getattr(tally, name) for name in ("counts", "differing", "crashes", "flips", "faults", "disk")
        }
        asked.json.write_text(json.dumps(metadata, indent=2))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
