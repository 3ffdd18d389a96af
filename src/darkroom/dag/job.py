"""Run one stage with DVC for a rule of Snakemake, then check that DVC's cache has its outputs."""

import sys

from darkroom.dag import dvc
from darkroom.dag.lock_file import lost_of, message


def main() -> int:
    """Run the stage that the command line names, if it is stale; return the exit status."""
    stage = sys.argv[1]
    sys.argv[1:] = ["repro", "--single-item", stage]
    if status := dvc.main():
        return status
    if lost := lost_of([stage]):
        print(f"{stage}: {message(lost)}", file=sys.stderr)
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
