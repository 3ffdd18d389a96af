"""The curves of a training: a declared output that `dvc plots show` draws."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import atomic_folder, write_json

Record = dict[str, Any]  # images seen under `images`, and numbers by name


def write_curves(folder: Path, records: Sequence[Record], also: Callable[[Path], object] | None = None) -> None:
    """Write the records of a training as DVCLive curves (`FOLDER/plots/metrics/NAME.tsv`, step = images seen).

    `also` writes additional files to the folder.

    The curves are a declared output: they hold results, no times or machines, and are written atomically when the
    training is done. While it runs, the journal holds the same values.
    """
    with atomic_folder(folder) as temporary:
        if not records:
            write_json(temporary / "metrics.json", {})  # as DVCLive does, whose import takes longer
            return
        from dvclive import Live

        class Files(Live):
            """Live that only writes files, without reading git, which may have no commit, and without DVC Studio."""

            def _init_dvc(self) -> None:
                pass

            def _init_studio(self) -> None:
                self._studio_events_to_skip |= {"start", "data", "done"}

        live = Files(str(temporary), dvcyaml=None, report=None, save_dvc_exp=False, monitor_system=False)
        for record in records:
            live.step = record["images"]
            for name, value in record.items():
                if name != "images":
                    live.log_metric(name, value)
        live.make_summary()
        live.end()
        if also is not None:
            also(temporary)
