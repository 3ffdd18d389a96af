"""Run the jobs of snakemake-executor-plugin-kubernetes in the clone, on a volume that all pods mount.

The plugin (0.5.1) supports only remote storage, and leaves out of a job's specification what Darkroom needs.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

GRACE = 300  # seconds between SIGTERM and SIGKILL, for a checkpoint


def fit(body: Any, gpus: int, minutes: int | None) -> None:
    """Complete a V1Job of the plugin in place.

    Args:
        body: the job.
        gpus: its number of GPUs.
        minutes: the time limit, counted from the start of the pod; None: no limit.
    """
    pod = body.spec.template.spec
    container = pod.containers[0]
    container.working_dir = str(Path.cwd())
    # Kubernetes rejects GPUs without a limit, and the plugin lets jobs without GPUs run on nodes that have them.
    requests = {name: value for name, value in container.resources.requests.items() if not name.endswith("/gpu")}
    limits = {"memory": requests["memory"]}
    pod.tolerations = None
    if gpus:
        limits["nvidia.com/gpu"] = str(gpus)
        pod.tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    container.resources.requests, container.resources.limits = requests, limits
    pod.active_deadline_seconds = None if minutes is None else 60 * minutes
    pod.termination_grace_period_seconds = GRACE
    # A pod that still writes its checkpoint has not failed yet, so its stage does not start a second time beside it.
    body.spec.pod_replacement_policy = "Failed"
    # Workers pass batches through shared memory, of which a container has 64 MB by default.
    pod.volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    container.volume_mounts.append({"name": "shm", "mountPath": "/dev/shm"})


def use_clone() -> None:
    """Let the plugin, if it is installed, use a shared clone, SIGTERM, time limits and GPUs."""
    plugin = sys.modules.get("snakemake_executor_plugin_kubernetes")
    if plugin is None:
        return
    settings = plugin.common_settings
    settings.implies_no_shared_fs = settings.job_deploy_sources = False
    settings.auto_deploy_default_storage_provider = False
    run_job = plugin.Executor.run_job

    def run(executor: Any, job: Any) -> None:
        api, resources = executor.batchapi, dict(job.resources)

        def create(namespace: str, body: Any) -> Any:
            fit(body, resources.get("gpu", 0), resources.get("runtime"))
            return type(api).create_namespaced_job(api, namespace, body)

        api.create_namespaced_job = create
        run_job(executor, job)

    plugin.Executor.run_job = run
    # `exec`: the first process of a container is the only one to get SIGTERM, and `sh` would ignore it.
    plugin.Executor.get_python_executable = lambda executor: f"exec {shlex.quote(sys.executable)}"
    _read_logs(plugin.kubernetes.client)


def _read_logs(client: Any) -> None:
    """Let a pod's log be read; the plugin reads that of a `previous` container, and an error ends the whole run."""
    read = client.CoreV1Api.read_namespaced_pod_log

    def read_log(api: Any, **options: Any) -> Any:
        try:
            return read(api, **options | {"previous": False})
        except client.rest.ApiException as error:  # the pod is gone
            return f"no log: {error.reason}"

    client.CoreV1Api.read_namespaced_pod_log = read_log
