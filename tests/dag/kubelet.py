"""Run Snakemake with a Kubernetes whose pods are processes here: `python kubelet.py FOLDER SNAKEMAKE'S ARGUMENTS`.

The API server is replaced, the plugin and the client's serialization are real. A pod gets a PID namespace of its own,
the command and the variables of its manifest, and nothing else of this process; no volume, image or limit is applied.
FOLDER receives the log of each pod, and `jobs.jsonl` with each job as it would be sent.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes.client
import kubernetes.config
from kubernetes.client.rest import ApiException

FOLDER = Path(sys.argv.pop(1))
IMAGE = (
    "PATH",
    "PYTHONPATH",
    "DVC_SITE_CACHE_DIR",
    "DVC_GLOBAL_CONFIG_DIR",
    "DVC_SYSTEM_CONFIG_DIR",
    "GIT_CONFIG_GLOBAL",
)
pods: dict[str, subprocess.Popen[str]] = {}
secrets: dict[str, dict[str, str]] = {}


def create_secret(api: Any, namespace: str, body: Any) -> None:
    secrets[body.metadata.name] = {key: base64.b64decode(value).decode() for key, value in body.data.items()}


def create_job(api: Any, namespace: str, body: Any) -> None:
    job = kubernetes.client.ApiClient().sanitize_for_serialization(body)
    container = job["spec"]["template"]["spec"]["containers"][0]
    environment = {name: os.environ[name] for name in IMAGE if name in os.environ} | {"HOME": str(FOLDER)}
    for variable in container["env"]:
        reference = variable["valueFrom"]["secretKeyRef"]
        environment[variable["name"]] = secrets[reference["name"]][reference["key"]]
    name = job["metadata"]["name"]
    with (FOLDER / f"{name}.log").open("w") as log:
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        command += [*container["command"], *container["args"]]
        output: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        pods[name] = subprocess.Popen(command, cwd=container["workingDir"], env=environment, text=True, **output)
    with (FOLDER / "jobs.jsonl").open("a") as file:
        print(json.dumps({"namespace": namespace, "unshare": pods[name].pid, "job": job}), file=file)


def read_status(api: Any, name: str, namespace: str) -> Any:
    code = pods[name].poll()
    return SimpleNamespace(status=SimpleNamespace(succeeded=int(code == 0), failed=int(code not in (0, None))))


def list_pods(api: Any, namespace: str, label_selector: str) -> Any:
    name = label_selector.removeprefix("job-name=")
    code = pods[name].poll()
    state = SimpleNamespace(terminated=None if code is None else SimpleNamespace(exit_code=code))
    status = SimpleNamespace(container_statuses=[SimpleNamespace(name="snakemake", state=state)])
    return SimpleNamespace(items=[SimpleNamespace(status=status, metadata=SimpleNamespace(name=name))])


def read_log(api: Any, name: str, namespace: str, container: str, previous: bool = False) -> str:
    if previous:  # of a container that was restarted, which restartPolicy Never excludes
        raise ApiException(status=400, reason=f'previous terminated container "{container}" in pod "{name}" not found')
    return (FOLDER / f"{name}.log").read_text()


def delete(api: Any, name: str, namespace: str, **options: Any) -> None:
    if pods[name].poll() is None:
        for child in Path(f"/proc/{pods[name].pid}/task/{pods[name].pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)


kubernetes.config.load_kube_config = lambda: None
kubernetes.client.CoreV1Api.create_namespaced_secret = create_secret
kubernetes.client.CoreV1Api.delete_namespaced_secret = lambda api, name, namespace, body: secrets.pop(name)
kubernetes.client.CoreV1Api.list_namespaced_pod = list_pods
kubernetes.client.CoreV1Api.read_namespaced_pod_log = read_log
kubernetes.client.CoreV1Api.delete_namespaced_pod = delete
kubernetes.client.BatchV1Api.create_namespaced_job = create_job
kubernetes.client.BatchV1Api.read_namespaced_job_status = read_status
kubernetes.client.BatchV1Api.delete_namespaced_job = delete

if __name__ == "__main__":
    from snakemake.cli import main

    main()
