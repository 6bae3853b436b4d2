"""Write the pod template of each queue, and the file that gives tasks their template, when the images are built.

The queue of a task is that of profiles/tasks.json or docker/tasks.yaml, the resources of a queue those of queues.yaml.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# In the images.
PODS = "/opt/corpus/docker/kubernetes/pods"
ENVIRONMENT = {
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://crisis-corpus-api-server:8080/execution/",
    "CORPUS_SECRET_FILE": "/run/secrets/corpus",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "credential.helper",
    "GIT_CONFIG_VALUE_0": '!f() { test "$1" = get && cat /run/secrets/git_credentials; }; f',
    "HF_HOME": "/var/lib/corpus/huggingface",
}


def tasks() -> dict[str, dict[str, Any]]:
    """Return the template of each task and step that is not in the queue `default`."""
    project = json.loads((ROOT / "profiles" / "tasks.json").read_text())
    ours = yaml.safe_load((ROOT / "docker" / "tasks.yaml").read_text())
    queues = {task: options["queue"] for task, options in {**project, **ours}.items() if "queue" in options}
    return {task: {"executor_config": {"pod_template_file": f"{PODS}/{queue}.yaml"}} for task, queue in queues.items()}


def pod(queue: str, *, options: dict[str, Any], image: str) -> dict[str, Any]:
    """Return the pod template of a queue; no container may write to its root, and none has a token of the cluster."""
    resources = {"cpu": options["cpu"], "memory": options["memory"], "ephemeral-storage": options["disk"]}
    gpus = {"nvidia.com/gpu": options["gpus"]} if options["gpus"] else {}
    places = {"/opt/airflow": "airflow", "/opt/airflow/logs": "logs", "/run/secrets": "secrets", "/tmp": "tmp",  # noqa: S108
              "/var/lib/corpus": "home", "/var/lib/corpus/scratch": "scratch"}  # fmt: skip
    container = {
        "name": "base",
        "image": image,
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "envFrom": [{"configMapRef": {"name": "corpus-settings"}}],
        "resources": {"requests": resources | gpus, "limits": {"memory": options["memory"]} | gpus},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": name, "mountPath": path} | ({"readOnly": True} if name == "secrets" else {})
            for path, name in places.items()
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "task", "labels": {"tier": "airflow", "component": "worker", "corpus-queue": queue}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [container],
            "restartPolicy": "Never",
            "securityContext": {
                "fsGroup": 0,
                "runAsGroup": 0,
                "runAsNonRoot": True,
                "runAsUser": 50000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                *({"name": name, "emptyDir": {}} for name in ("airflow", "scratch", "tmp")),
                *(
                    {"name": name, "persistentVolumeClaim": {"claimName": f"corpus-{name}"}}
                    for name in ("home", "logs")
                ),
                {"name": "secrets", "secret": {"secretName": "corpus-worker", "defaultMode": 0o440}},
            ],
        },
    }


def files() -> dict[Path, str]:
    """Return the text of each file by its path."""
    settings = yaml.safe_load((FOLDER / "queues.yaml").read_text())
    texts: dict[Path, Any] = {FOLDER / "tasks.yaml": tasks()}
    for queue, options in settings["queues"].items():
        image = f"{settings['registry']}/{options['image']}:{settings['tag']}"
        texts[FOLDER / "pods" / f"{queue}.yaml"] = pod(queue, options=options, image=image)
    return {path: yaml.safe_dump(content, sort_keys=False, width=120) for path, content in texts.items()}


if __name__ == "__main__":
    (FOLDER / "pods").mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
