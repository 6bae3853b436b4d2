"""The containers obey the rules of their page: no root, no secret in a text, digests by script, one way out.

No image is built: hadolint reads the Dockerfile, the other tests read YAML and the configuration of this Airflow.
"""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from crisis_corpus_sandbox import component
from tests import test_docs_commands as printed
from tests.json_server import Request, json_server

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
IMAGES: dict[str, dict[str, str | None]] = json.loads((FOLDER / "images.json").read_text())
TEXTS = [p for p in FOLDER.rglob("*") if p.suffix in (".yaml", ".json", ".conf", ".ini", ".sh", ".env", ".lock")]
# what the images write, by path
TEMPLATES: dict[Path, str] = runpy.run_path(str(FOLDER / "kubernetes" / "pod_templates.py"))["files"]()
PODS = {path.stem: yaml.safe_load(text) for path, text in TEMPLATES.items() if path.parent.name == "pods"}
ONCE = {"airflow-init", "corpus-init", "corpus-setup"}
# In apache-airflow-providers-celery 3.26, whose configuration Airflow's own fallbacks repeat only in part.
OF_PROVIDERS = {("celery", "result_backend"): True, ("celery", "broker_url"): True}
MERGED = {"x-hardened", "x-arguments", "x-addresses", "x-airflow", "x-worker"}


def stages() -> dict[str, str]:
    """Return the instructions of each stage of the Dockerfile by its name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return {parts[n + 1]: f"FROM {parts[n]}\n{parts[n + 2]}" for n in range(1, len(parts), 3)}


def variables() -> Iterator[tuple[str, str]]:
    """Yield every variable that an image, a service or a pod sets, with its value."""
    for block in re.findall(r"^ENV .*?(?<!\\)$", DOCKERFILE, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"\b([A-Z][A-Z0-9_]+)=(\S+)", block)
    for service in SERVICES.values():
        yield from service.get("environment", {}).items()
    for template in PODS.values():
        for variable in template["spec"]["containers"][0]["env"]:
            yield variable["name"], variable["value"]
    for variable in yaml.safe_load((FOLDER / "kubernetes" / "values.yaml").read_text())["env"]:
        yield variable["name"], variable["value"]
    for line in (FOLDER / "sandbox.env").read_text().splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


def test_hadolint_accepts_the_dockerfile() -> None:
    program = Path(sys.executable).with_name("hadolint")
    found = str(program) if program.exists() else shutil.which("hadolint")
    assert found, "hadolint is in dev.lock: make .venv/.dev"
    done = subprocess.run([found, "--no-color", FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert not done.returncode and not done.stdout, done.stdout


@pytest.mark.parametrize("name", stages())
def test_an_image_ends_without_root_and_with_a_health_check(name: str) -> None:
    found, text, base = stages(), "", name
    while base in found:
        base, _, rest = found[base].removeprefix("FROM ").partition("\n")
        text = rest + text
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    assert users and users[-1].partition(":")[0] not in ("0", "root")
    assert "HEALTHCHECK" in text


def test_every_base_image_is_an_argument_with_a_digest_by_script() -> None:
    made = stages()
    for text in made.values():
        base = text.partition("\n")[0].removeprefix("FROM ")
        assert base in made or re.fullmatch(r"\$\{[A-Z_]+\}", base), base
    arguments = re.findall(r"^ARG (.*)$", DOCKERFILE, re.MULTILINE)
    assert all(name in IMAGES for name in arguments), "an argument without a default, in images.json"
    ours = {f"crisis-corpus/{name}:${{IMAGE_TAG:-latest}}" for name in made}
    for service in SERVICES.values():
        pinned = re.fullmatch(r"\$\{([A-Z_]+):\?run docker/resolve_digests.py\}", service["image"])
        assert service["image"] in ours or (pinned and pinned[1] in IMAGES)
        for name, value in service.get("build", {}).get("args", {}).items():
            assert name in IMAGES and value == f"${{{name}:?run docker/resolve_digests.py}}"
    workflow = (ROOT / ".github/workflows/images.yml").read_text()
    assert "resolve_digests.py --check" in workflow
    assert all(f"--build-arg {name}" in workflow for name in arguments)
    assert yaml.safe_load(workflow)["jobs"]["build"]["strategy"]["matrix"]["target"] == list(made)
    for image in IMAGES.values():
        assert image["digest"] is None or re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])


def test_tags_are_the_locked_versions() -> None:
    def locked(lock: str, name: str) -> str:
        [version] = re.findall(rf"^{name}==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
        return str(version)

    tags = {name: str(image["image"]).rpartition(":")[2] for name, image in IMAGES.items()}
    assert tags["AIRFLOW_IMAGE"] == f"{locked('requirements.lock', 'apache-airflow')}-python3.11"
    assert tags["MLFLOW_IMAGE"] == f"v{locked('requirements.lock', 'mlflow')}"
    assert tags["LABEL_STUDIO_IMAGE"] == locked("label-studio.lock", "label-studio")
    values = yaml.safe_load((FOLDER / "kubernetes" / "values.yaml").read_text())
    assert values["airflowVersion"] == locked("requirements.lock", "apache-airflow")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert int(service["user"].partition(":")[0]) > 0 and "privileged" not in service
    assert service["read_only"] and "/tmp" in service["tmpfs"]
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert set(service["profiles"]) <= {"core", "gpu", "annotate", "sandbox"}
    test = service["healthcheck"]
    assert test.get("disable") if name in ONCE else test["test"]
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ()))
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_one_service_has_a_way_out() -> None:
    networks = COMPOSE["networks"]
    assert networks["inside"] == {"internal": True}
    assert networks["front"]["driver_opts"] == {"com.docker.network.bridge.enable_ip_masquerade": "false"}
    assert [name for name, service in SERVICES.items() if "outside" in service.get("networks", ())] == ["worker-fetch"]
    assert [name for name, service in SERVICES.items() if "networks" not in service] == ["sandbox"]
    assert SERVICES["sandbox"]["network_mode"] == "service:worker-fetch"
    options = yaml.safe_load((FOLDER / "tasks.yaml").read_text())
    online = {task for task, given in options.items() if given["queue"] == "internet"}
    assert {"collect", "refresh", "images", "sweep"} <= online


def test_workers_have_no_secret_of_airflow_and_airflow_none_of_the_corpus() -> None:
    workers = {name for name, service in SERVICES.items() if "--queues" in service.get("command", ())}
    airflow = {name for name, service in SERVICES.items() if "airflow_fernet" in service.get("secrets", ())}
    assert workers == {"worker", "worker-fetch", "worker-gpu"} and not workers & airflow
    for name in workers:
        assert not {"airflow_database", "airflow_jwt"} & set(SERVICES[name]["secrets"])
    for name in airflow:
        ours = {secret for secret in SERVICES[name]["secrets"] if not secret.startswith("airflow_")}
        assert ours <= {"CORPUS_AIRFLOW_PASSWORD"}
        assert not any(str(volume).startswith("home:") for volume in SERVICES[name]["volumes"])


def test_every_queue_has_a_worker_and_a_pod() -> None:
    project = json.loads((ROOT / "profiles" / "tasks.json").read_text())
    ours = yaml.safe_load((FOLDER / "tasks.yaml").read_text())
    steps = set(project) | set(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])
    assert {task.partition("__")[0] for task in ours} <= steps
    queues = {options["queue"] for options in (*project.values(), *ours.values()) if "queue" in options} | {"default"}
    commands = [service["command"] for service in SERVICES.values() if "--queues" in service.get("command", ())]
    assert queues == {command[command.index("--queues") + 1] for command in commands}
    assert queues == set(PODS)


def test_references_exist() -> None:
    secrets, volumes = set(COMPOSE["secrets"]), set(COMPOSE["volumes"])
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES) - {name}
        for other, condition in service.get("depends_on", {}).items():
            wanted = condition["condition"]
            assert (wanted == "service_completed_successfully") == (other in ONCE), f"{name} waits for {other}"
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"])
        assert set(service.get("secrets", ())) <= secrets
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0] if not volume.startswith("${") else "dumps"
            assert source in volumes or (FOLDER / source).is_file(), volume
    # PostgreSQL's image would read a script that cannot be executed into its own shell, with its options
    assert (FOLDER / "databases.sh").stat().st_mode & 0o111 == 0o111
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == secrets and set(COMPOSE) - MERGED == {"name", "services", "networks", "volumes", "secrets"}


def test_each_secret_is_a_file_that_the_script_writes(tmp_path: Path) -> None:
    write = runpy.run_path(str(FOLDER / "make_secrets.py"))["write"]
    written = write(tmp_path / "secrets")
    assert all(given == {"file": f"secrets/{name}"} for name, given in COMPOSE["secrets"].items())
    assert set(written) == set(COMPOSE["secrets"])
    texts = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert write(tmp_path / "secrets") == []
    assert all((tmp_path / "secrets" / name).read_text() == text for name, text in texts.items())
    assert len(bytes.fromhex(texts["corpus"])) >= 32
    assert texts["postgres_vault"] in texts["CORPUS_VAULT_URL"] and texts["redis"] in texts["airflow_broker"]
    assert texts["LABEL_STUDIO_USER_TOKEN"] == texts["CORPUS_LABEL_STUDIO_KEY"]
    assert texts["MLFLOW_AUTH_ADMIN_PASSWORD"] == texts["MLFLOW_TRACKING_PASSWORD"]


def test_no_text_holds_a_secret() -> None:
    secret = re.compile(r"PASSWORD|SECRET|TOKEN|_KEY$|_KEY_ID|FERNET|SQL_ALCHEMY_CONN|BROKER_URL|RESULT_BACKEND|_URL$")
    addresses = re.compile(r"https?://[a-z0-9.-]+(:\d+)?(/[a-z0-9/]*)?")
    for name, value in variables():
        if secret.search(name) and not name.startswith("GIT_CONFIG"):
            plain = name.endswith("_URL") and addresses.fullmatch(value.partition(":-")[2].rstrip("}") or value)
            assert plain or value.startswith(("cat /run/secrets/", "/run/secrets/")) or value == "true", name
    for path in (*TEXTS, FOLDER / "Dockerfile", ROOT / ".github/workflows/images.yml"):
        assert not re.search(r"//[^/@\s:]*:[^/@\s{$]+@", path.read_text()), f"{path.name}: an address with a password"


def test_every_option_of_airflow_is_one() -> None:
    from airflow.configuration import conf

    known: dict[tuple[str, str], bool] = {
        (section, option): bool(found.get("sensitive"))
        for section, group in conf.configuration_description.items()
        for option, found in group["options"].items()
    } | OF_PROVIDERS
    given = {name for name, _ in variables() if name.startswith("AIRFLOW__")}
    assert len(given) > 10
    for name in given:
        section, option = name.removeprefix("AIRFLOW__").lower().split("__")
        by_command = option.endswith("_cmd")
        assert (section, option.removesuffix("_cmd")) in known, name
        secret = known[section, option.removesuffix("_cmd")]
        assert secret or not by_command, f"{name}: only a secret is read by a command"
    values = yaml.safe_load((FOLDER / "kubernetes" / "values.yaml").read_text())
    assert {(section, option) for section, group in values["config"].items() for option in group} <= set(known)


def test_every_variable_of_the_project_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    documented = set(re.findall(r"\b(?:CORPUS|MLFLOW)_[A-Z_]+\b", page)) | {
        f"CORPUS_{provider}_{part}" for provider in ("OPENAI", "ANTHROPIC", "GOOGLE") for part in ("KEY", "URL")
    }
    given = {name for name, _ in variables() if name.startswith("CORPUS_")}
    given |= {name for name in COMPOSE["secrets"] if name.startswith("CORPUS_")}
    assert given <= documented, given - documented


def test_the_sandbox_has_the_addresses_of_the_embedded_one() -> None:
    port = yaml.safe_load((ROOT / "profiles" / "sandbox.yaml").read_text())["sandbox"]["port"]
    lines = [line for line in (FOLDER / "sandbox.env").read_text().splitlines() if not line.startswith("#")]
    given = dict(line.split("=", 1) for line in lines)
    addresses = {name: value for name, value in component.variables(port).items() if name.endswith("_URL")}
    assert given.items() >= (addresses | {"CORPUS_SANDBOX_PORT": str(port)}).items()
    keys = {name for name in component.variables(port) if not name.endswith("_URL")}
    assert keys == set(runpy.run_path(str(FOLDER / "make_secrets.py"))["OTHERS"])


def commands() -> list[str]:
    """Return the `corpus` commands of services and images, as text."""
    code = re.sub(r"^#.*$", "", DOCKERFILE, flags=re.MULTILINE)
    texts = [" ".join((*one.get("entrypoint", ()), *one.get("command", ()))) for one in SERVICES.values()]
    found = re.findall(r"(?<![/-])\bcorpus [a-z]+(?: [a-z]+)?(?= |$|\")", "\n".join((*texts, code)), re.MULTILINE)
    return sorted({text.removesuffix(" exec") for text in found})


@pytest.mark.parametrize("text", commands())
def test_commands_of_the_project_exist(text: str) -> None:
    known = dict(runpy.run_path(str(ROOT / "docs" / "reference.py"))["commands"]())
    printed.test_commands_and_options_exist(printed.Block("docker/compose.yaml", 1, "sh", "docker", text), known)


def test_the_images_write_the_pods_where_airflow_looks_for_them() -> None:
    assert "RUN python docker/kubernetes/pod_templates.py" in stages()["airflow"]
    values = yaml.safe_load((FOLDER / "kubernetes" / "values.yaml").read_text())
    options = yaml.safe_load(TEMPLATES[FOLDER / "kubernetes" / "tasks.yaml"])
    named = {given["executor_config"]["pod_template_file"] for given in options.values()}
    named |= {variable["value"] for variable in values["env"] if variable["name"] == "CORPUS_AIRFLOW_TASKS"}
    named.add(values["config"]["kubernetes_executor"]["pod_template_file"])
    assert named == {f"/opt/corpus/{path.relative_to(ROOT)}" for path in TEMPLATES}


def test_the_plugin_accepts_the_options_of_tasks() -> None:
    from dvc_airflow.task_options import checked

    for text in ((FOLDER / "tasks.yaml").read_text(), TEMPLATES[FOLDER / "kubernetes" / "tasks.yaml"]):
        for task, options in yaml.safe_load(text).items():
            checked(options, where=task)


def test_pods_are_confined() -> None:
    for template in PODS.values():
        spec = template["spec"]
        [container] = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
        assert container["securityContext"]["readOnlyRootFilesystem"] and container["name"] == "base"
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_a_command_gets_the_secrets_that_are_named_like_variables(tmp_path: Path) -> None:
    for name, text in {"CORPUS_VAULT_URL": "postgresql://a b", "corpus": "ff", "CORPUS_OPENAI_KEY": ""}.items():
        (tmp_path / name).write_text(text)
    argv = ["sh", str(FOLDER / "with_secrets.sh"), "env"]
    env = {"PATH": "/usr/bin:/bin", "SECRETS": str(tmp_path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    given = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert given["CORPUS_VAULT_URL"] == "postgresql://a b" and not {"corpus", "CORPUS_OPENAI_KEY"} & given.keys()


SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docker" / "resolve_digests.py"))
MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def answer(request: Request) -> tuple[int, Any, dict[str, str]]:
    """Answer as a registry with two images, of which one has a false digest in its header."""
    if request.path == "/token":
        return 200, {"token": quote(request.query["scope"], safe="")}, {}
    if request.headers["Authorization"] != "Bearer repository%3Ateam%2Ftool%3Apull":
        realm = f"http://{request.headers['Host']}/token"
        asks = f'Bearer realm="{realm}",service="registry",scope="repository:team/tool:pull"'
        return 401, b"", {"WWW-Authenticate": asks}
    stated = {"/v2/team/tool/manifests/1.0": DIGEST, "/v2/team/tool/manifests/false": "sha256:" + "0" * 64}
    if request.path not in stated or "image.index.v1+json" not in request.headers["Accept"]:
        return 404, b"", {}
    return 200, MANIFEST, {"Docker-Content-Digest": stated[request.path]}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with json_server(answer) as address:
        yield address.removeprefix("http://")


def folder(place: Path, image: str, digest: str | None) -> Path:
    (place / "images.json").write_text(json.dumps({"TOOL_IMAGE": {"image": image, "digest": digest}}))
    return place


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("postgres:16", ("registry-1.docker.io", "library/postgres", "16")),
        ("apache/airflow:3.3", ("registry-1.docker.io", "apache/airflow", "3.3")),
        ("ghcr.io/mlflow/mlflow:v3", ("ghcr.io", "mlflow/mlflow", "v3")),
        ("localhost:5000/a/b:c", ("localhost:5000", "a/b", "c")),
    ],
)
def test_a_name_is_read_as_docker_reads_it(image: str, parts: tuple[str, str, str]) -> None:
    assert SCRIPT["parts"](image) == parts


def test_a_missing_digest_is_resolved_once_and_given_to_compose(registry: str, tmp_path: Path) -> None:
    place = folder(tmp_path, f"{registry}/team/tool:1.0", None)
    assert SCRIPT["main"]([], folder=place) == 0
    assert json.loads((place / "images.json").read_text())["TOOL_IMAGE"]["digest"] == DIGEST
    assert (place / ".env").read_text() == f"TOOL_IMAGE={registry}/team/tool:1.0@{DIGEST}\n"
    kept = folder(tmp_path, f"{registry}/team/tool:gone", DIGEST)
    assert SCRIPT["main"](["--check"], folder=kept) == 0 and SCRIPT["main"]([], folder=kept) == 0
    assert SCRIPT["main"](["--all"], folder=kept) == 1, "the tag is gone"


@pytest.mark.parametrize("tag", ["false", "absent"])
def test_nothing_is_written_for_an_image_without_a_digest(
    registry: str, tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder(tmp_path, f"{registry}/team/tool:{tag}", None)
    before = (place / "images.json").read_text()
    assert SCRIPT["main"]([], folder=place) == 1 and f"tool:{tag}" in capsys.readouterr().err
    assert (place / "images.json").read_text() == before and not (place / ".env").exists()


def test_a_release_with_an_unresolved_digest_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, "postgres:16", None)
    assert SCRIPT["main"](["--check"], folder=place) == 1 and "TOOL_IMAGE" in capsys.readouterr().err
    assert not (place / ".env").exists()


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code, which would run with the workflow's token."""
    used = [
        use
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for use in re.findall(r"uses: (.+)", path.read_text())
    ]
    assert used and not [use for use in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}(?:  # v[\d.]+)?", use)]
