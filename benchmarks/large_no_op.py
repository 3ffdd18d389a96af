"""What it costs to ask when nothing is to be done, with 1.28 million images in 1,281 shards and 16 parts.

    PYTHONPATH=src python benchmarks/large_no_op.py

In a clone of its own: indexes as `large_index.py` writes them, and every tar and every file of latents as a file of 64
KB, since the engines look at names, sizes and times, and the cache holds what they hashed once. The other outputs are
stand-ins, and `dvc commit` says that all of them are up to date. Then the commands of `no_op.py`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import large_index
import no_op
import yaml

from darkroom.params.stage import OUTPUTS, items, paths, scope, stage_entry

ROOT = Path(__file__).resolve().parents[1]
BYTES = 64 * 1024


def shrink(root: Path) -> None:
    """Make of every hole a small file of its own."""
    for path in [*root.rglob("*.tar"), *root.rglob("*.safetensors")]:
        path.write_bytes(os.urandom(BYTES))


def stand_in(path: Path) -> None:
    """Write something where a stage declares an output."""
    if path.suffix:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    else:
        path.mkdir(parents=True, exist_ok=True)
        (path / "manifest.json").write_text("{}")


def fill(clone: Path) -> None:
    """Make everything that dvc.yaml declares, with 16 large parts."""
    large_index.write(clone / "data")
    shrink(clone / "data")
    values = yaml.safe_load((clone / "params.yaml").read_text())
    images = large_index.SHARD * (large_index.TRAIN + 2)
    values["parts"] = {
        f"p{part:02d}": {
            "source": "shapes",
            "path": "data/none",
            "start": part * images,
            "stop": (part + 1) * images,
            "embeddings": "data/none",
        }
        for part in range(large_index.PARTS)
    }
    values["train_tokenizer"]["parts"] = None
    (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    dvc = yaml.safe_load((clone / "dvc.yaml").read_text())
    for stage in dvc["stages"]:
        for item in items(values, dvc, stage) if stage != "code" else ():
            for out in paths(stage_entry(dvc, stage), OUTPUTS, scope(values, dvc, stage, item)):
                if not (clone / out).exists():
                    stand_in(clone / out)


def main() -> None:
    """Build the clone, commit it, and time the commands in it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        fill(clone)
        program = Path(sys.executable).with_name("dvc")
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([program, "repro", "--quiet", "code"], cwd=clone, check=True, env=os.environ | {"PATH": path})
        subprocess.run([program, "commit", "--force", "--quiet"], cwd=clone, check=True)
        no_op.ROOT = clone
        no_op.main()


if __name__ == "__main__":
    main()
