# A sweep: the stale stages of all its points as one DAG. `darkroom sweep` makes the clones of the points and calls
# Snakemake in the folder of the sweep, with this file of the first clone: a later edit in the checkout changes nothing.
import json
import os
import shutil
import sys
import time
from contextlib import chdir
from pathlib import Path

CLONE = Path(workflow.basedir).parent
ROOT = CLONE.parents[3]  # of the checkout, from .darkroom/sweeps/NAME/POINT
sys.path[:0] = [str(CLONE / "workflow"), str(CLONE / "src")]
from darkroom.dag import parents
from pods import use_clone
from stopping import pass_on_sigterm
from sweep import DONE, jobs

os.environ.setdefault("DARKROOM_RUN", f"{os.getpid()} {time.time():.0f}")
cluster = config.get("cluster", False)
points = json.loads(Path("waiting.json").read_text())
PLAN, BASE = Path("plan.json"), json.loads(Path("sweep.json").read_text())["commit"]
# DVC identifies an experiment by its ref alone.
GIT = "git -c user.name=Darkroom -c user.email=darkroom@localhost -c commit.gpgsign=false -c core.hooksPath=/dev/null"
use_clone()
pass_on_sigterm(workflow.is_main_process, cluster)
if workflow.is_main_process:  # a job that Snakemake starts reads the plan
    # Waits for another run of this sweep.
    planned, gpus = jobs(points, cluster, config.get("processes_per_node"))
    shutil.rmtree("done", ignore_errors=True)
    PLAN.write_text(json.dumps(planned, indent=1))
    if gpus is not None and "gpu" not in workflow.global_resources:
        workflow.register_resource("gpu", gpus)
    if not cluster:
        with chdir(CLONE):  # the source that the parents read
            parents.start([parents.LIGHT, parents.NETWORKS])
else:
    os.environ[parents.NAME] = ""
    planned = json.loads(PLAN.read_text())


# Every point as an experiment of DVC.
rule all:
    default_target: True
    input:
        [DONE.format(point=point, stage="saved") for point in points],
    localrule: True


# What a profile or `--set-resources` says of a stage is for its jobs in all points.
chosen = workflow.resource_settings.overwrite_resources
for job in planned:
    if (stage := Path(job["done"]).name.partition("@")[0]) in chosen:
        chosen[job["rule"]] = chosen[stage]


# In a loop Snakemake evaluates `shell` and `params` late (snakemake#2832), so these take their words from the output.
for job in planned:

    rule:
        name:
            job["rule"]
        input:
            job["inputs"],
        output:
            touch(job["done"]),
        log:
            stage=job["log"],
            dvc=f"{job['log']}.dvc",
        priority: job["priority"]
        localrule: job["local"]
        threads: job["threads"]
        resources:
            **job["nodes"],
            gpu=job["gpu"],
            seconds=job["seconds"],
        params:
            point=lambda wildcards, output: Path(output[0]).parent.name,
            stage=lambda wildcards, output: Path(output[0]).name,
            nodes=lambda wildcards, resources: resources.get("nodes", 1),
        shell:
            "cd {params.point} && DARKROOM_NODES={params.nodes} PYTHONPATH=src python -S -m darkroom.dag.parents reproduce {params.stage}"
            ' > "$OLDPWD"/{log.dvc} 2>&1'


# An experiment of DVC is a commit on its baseline with a ref. It is made in the clone, and fetched from there. A job that
# was killed may have left a lock of git's index.
for point in points:

    rule:
        name:
            f"{point}_saved"
        input:
            [job["done"] for job in planned if Path(job["done"]).parent.name == point],
        output:
            touch(DONE.format(point=point, stage="saved")),
        log:
            f"{point}/logs/saved.log",
        priority: 10**6
        localrule: True
        params:
            point=lambda wildcards, output: Path(output[0]).parent.name,
            root=str(ROOT),
            ref=lambda wildcards, output: f"refs/exps/{BASE[:2]}/{BASE[2:]}/{Path(output[0]).parent.name}",
        shell:
            "( rm -f {params.point}/.git/index.lock"
            " && {GIT} -C {params.point} add --all"
            " && ({GIT} -C {params.point} diff --cached --quiet"
            " || {GIT} -C {params.point} commit --quiet --message 'darkroom sweep: {params.point}')"
            " && git -C {params.root:q} fetch --quiet --force --no-tags --no-write-fetch-head --no-auto-maintenance"
            ' "$PWD"/{params.point} HEAD:{params.ref} ) > {log} 2>&1'
