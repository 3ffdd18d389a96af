"""Which outputs are of other data or parameters than in params.yaml, by dvc.lock alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.dag.records import outdated

DVC = {
    "ingest": {"foreach": "${parts}", "do": {"cmd": "x", "outs": ["data/shards/${key}"]}},
    "catalog": {"cmd": "x", "outs": ["data/catalog"]},
    "train_generator": {"cmd": "x", "outs": ["models/generator"]},
    "score_generator": {"cmd": "x", "outs": ["metrics/generator.json"]},
}
PARAMS: dict[str, Any] = {
    "parts": {"one": {"path": "a"}, "two": {"path": "b"}},
    "ingest": {"image_size": 32},
    "train_generator": {"depth": 2},
}
SCORES = "metrics/generator.json"


def entry(deps: dict[str, str], out: str, md5: str, **params: Any) -> dict[str, Any]:
    """Return an entry of dvc.lock; an `md5` of N characters is of N bytes."""
    listed = [{"path": path, "md5": each, "size": len(each)} for path, each in {**deps, out: md5}.items()]
    return {"cmd": "x", "deps": listed[:-1], "params": {"params.yaml": params}, "outs": listed[-1:]}


def locked(params: dict[str, Any], mark: str = "", done: int = 5) -> dict[str, Any]:
    """Return the entries of the stages that a run with these parameters has done; `mark` ends all hashes of data."""
    parts, depth = params["parts"], {"train_generator": params["train_generator"]}
    shards = {f"ingest@{part}": f"{part}{mark}" for part in parts}
    cat, trained = f"cat{mark}", f"model{mark}{params['train_generator']['depth']}"
    entries = {
        f"ingest@{part}": entry(
            {},
            f"data/shards/{part}",
            shards[f"ingest@{part}"],
            ingest=params["ingest"],
            **{f"parts.{part}": parts[part]},
        )
        for part in parts
    }
    read = {"data/catalog": cat, "data/shards": "".join(shards.values())}
    entries |= {
        "catalog": entry({"data/shards": "".join(shards.values())}, "data/catalog", cat, parts=parts),
        "train_generator": entry({"data/catalog": cat}, "models/generator", trained, **depth),
        "score_generator": entry({**read, "models/generator": trained}, SCORES, f"of {trained}"),
    }
    for dep in [*entries["catalog"]["deps"], entries["score_generator"]["deps"][1]]:
        dep["nfiles"] = len(params["parts"])
    return dict(list(entries.items())[:done])


def states(tmp_path: Path, params: dict[str, Any], *runs: dict[str, Any]) -> dict[str, str]:
    """Return the outputs that are not of `params`, after some runs."""
    stages = {name: each for run in runs for name, each in run.items()}
    for name, value in {
        "dvc.yaml": {"stages": DVC},
        "params.yaml": params,
        "dvc.lock": {"schema": "2.0", "stages": stages},
    }.items():
        (tmp_path / name).write_text(yaml.safe_dump(value))
    return {path: "data" if state.data else "parameters" for path, state in outdated().items()}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


OWN: dict[str, Any] = {**PARAMS, "parts": {"own": {"path": "c"}}}
PARTLY: dict[str, Any] = {**PARAMS, "parts": {"own": {"path": "c"}, "two": {"path": "b"}}}
LARGER: dict[str, Any] = {**PARAMS, "ingest": {"image_size": 64}}
DEEPER: dict[str, Any] = {**PARAMS, "train_generator": {"depth": 4}}


def test_what_was_made_of_params_yaml_is_not_outdated(tmp_path: Path) -> None:
    made = locked(PARAMS)
    assert states(tmp_path, PARAMS, made) == {}
    made["catalog"]["deps"][0] |= {"size": 99, "nfiles": 9}  # a removed part left its folder
    assert states(tmp_path, PARAMS, made) == {}


@pytest.mark.parametrize(("new", "count"), [(OWN, 1), (PARTLY, 2), (LARGER, 2)])
def test_scores_of_other_data_are_so_until_their_stage_has_run(tmp_path: Path, new: dict[str, Any], count: int) -> None:
    for done in range(count + 3):
        assert states(tmp_path, new, locked(PARAMS), locked(new, "!", done))[SCORES] == "data", done
    assert states(tmp_path, new, locked(PARAMS), locked(new, "!")) == {}


def test_scores_of_other_parameters_are_stale(tmp_path: Path) -> None:
    stale = {"models/generator": "parameters", SCORES: "parameters"}
    assert states(tmp_path, DEEPER, locked(PARAMS)) == stale
    assert states(tmp_path, DEEPER, locked(PARAMS), locked(DEEPER, done=4)) == {SCORES: "parameters"}
    assert states(tmp_path, DEEPER, locked(PARAMS), locked(DEEPER)) == {}


def test_the_sentence_names_the_stage_that_replaces_it(tmp_path: Path) -> None:
    states(tmp_path, OWN, locked(PARAMS))
    assert f"{SCORES} {outdated()[SCORES]}" == (
        f"{SCORES} belongs to other data than in params.yaml; score_generator replaces it when it ends"
    )
    (tmp_path / "dvc.lock").unlink()
    assert outdated() == {}
