# One DAG, two engines: dvc.yaml declares the stages, DVC knows which are stale, Snakemake runs these in parallel.
import os
import sys
import time
from pathlib import Path

from snakemake.utils import min_version

min_version("9.10")

sys.path[:0] = [f"{workflow.basedir}/workflow", f"{workflow.basedir}/src"]
from pods import use_clone
from retries import decide
from stages import MARKER, Stages
from stopping import pass_on_sigterm

# One id for all stages of a run.
os.environ.setdefault("DARKROOM_RUN", f"{os.getpid()} {time.time():.0f}")
# A profile whose executor starts jobs on other machines sets this.
cluster = config.get("cluster", False)
stages = Stages(workflow.is_main_process, cluster, config.get("processes_per_node"))
pass_on_sigterm(workflow.is_main_process, cluster)
stages.start_parents(workflow.is_main_process)
decide()
use_clone()
if stages.gpus is not None and "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", stages.gpus)


wildcard_constraints:
    item="[a-z0-9][a-z0-9_-]*",


include: "workflow/rules/stages.smk"


# Everything that dvc.yaml declares.
rule all:
    default_target: True
    input:
        stages.all,


# The marker that makes a stale stage run. profiles/default forces this rule, which Snakemake cannot do from here.
rule stale:
    output:
        temp(touch(MARKER)),
    priority: 10**9  # before all stages, whose priorities then decide among all that are ready
    localrule: True


onsuccess:
    if workflow.is_main_process and Path("reports/index.html").is_file():
        print(
            "The page: reports/index.html. `darkroom scores` prints its scores, `darkroom show` shows its pictures, "
            "`darkroom times` lists how long each stage took."
        )
