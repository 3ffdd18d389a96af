"""Run by every rule after its stage: fails where DVC recorded an output and could not move it into its cache."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from darkroom.dag.lock_file import lost_of, message


def main(stage: str) -> int:
    """Print what is wrong with the outputs of a stage; return 1 where something is."""
    found = lost_of([stage])
    if found:
        print(f"{stage}: {message(found)}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
