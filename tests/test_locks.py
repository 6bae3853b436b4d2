"""What is installed is what was locked: every file by its hash, torch from its own index, nothing unnamed."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(str(path.relative_to(ROOT)) for place in (ROOT, ROOT / "docker") for path in place.glob("*.lock"))
MAKEFILE = (ROOT / "Makefile").read_text()
UV = Path(sys.executable).with_name("uv")


def entries(lock: str) -> list[str]:
    """Return the entries of a lock, each with its hashes."""
    return re.findall(r"^[^\s#].*?(?=^\S|\Z)", (ROOT / lock).read_text(), re.MULTILINE | re.DOTALL)


def blocks(lock: str) -> dict[str, str]:
    """Return the entry of each library of a lock, by its normalised name."""
    return {normal(entry): entry for entry in entries(lock)}


def normal(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[=<>;! ]", requirement)[0]).lower()


def flags() -> list[str]:
    """Return the options with which the Makefile installs a lock."""
    [line] = re.findall(r"^LOCKED = (.*)$", MAKEFILE, re.MULTILINE)
    return [word for word in line.split() if word not in ("--quiet", "--compile-bytecode")]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_library_is_pinned_with_its_hashes(lock: str) -> None:
    for entry in entries(lock):
        words = entry.replace("\\\n", " ").split()
        hashes = [word for word in words if word.startswith("--")]
        assert "==" in words[0], entry
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), words[0]


def test_no_install_goes_without_hashes_or_mixes_indexes() -> None:
    assert "unsafe" not in MAKEFILE
    assert {"--require-hashes", "--no-deps", "--build-constraints"} <= set(flags())
    commands = re.findall(r"^\t.*\bpip install\b.*$|^\t.*\$\(LOCKED\).*$", MAKEFILE, re.MULTILINE)
    loose = [c for c in commands if "$(LOCKED)" not in c and "--require-hashes" not in c]
    assert len(loose) == 2, "the project itself, and imagededup of make bench"
    assert "--editable" in loose[0] and "--no-build-isolation" in loose[0] and "imagededup==" in loose[1]


def test_torch_is_bound_to_its_own_index() -> None:
    [line] = re.findall(r"^TORCH = (.*)$", MAKEFILE, re.MULTILINE)
    assert "--default-index https://download.pytorch.org/whl/cpu" in line and "--extra-index" not in line
    with_torch = [c for c in re.findall(r"^\t.*\$\(LOCKED\).*$", MAKEFILE, re.MULTILINE) if "$(TORCH)" in c]
    assert len(with_torch) == 1 and with_torch[0].endswith("-r torch.lock")
    [pin] = [entry.split()[0] for entry in entries("requirements.lock") if normal(entry) == "torch"]
    assert {entry.split()[0] for entry in entries("torch.lock")} == {pin, f"{pin}+cpu"}


def test_development_is_apart_and_all_extras_are_locked() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked, dev = blocks("requirements.lock"), blocks("dev.lock")
    assert not locked.keys() & dev.keys()
    named = {extra: {normal(requirement) for requirement in extras[extra]} for extra in extras}
    assert named["core"] | named["airflow"] | named["gpu"] | named["s3"] <= locked.keys()
    assert named["dev"] - locked.keys() <= dev.keys() and {"pytest", "moto", "mypy"} <= dev.keys()


def test_images_add_to_the_lock_and_change_no_version_of_it() -> None:
    locked = blocks("requirements.lock")
    gpu, mlflow = (blocks(f"docker/requirements-{name}.lock") for name in ("gpu", "mlflow"))
    assert not locked.keys() & gpu.keys() and {"triton", "nvidia-cudnn-cu13"} <= gpu.keys()
    assert "flask-wtf" in mlflow and all(locked[name] == mlflow[name] for name in mlflow.keys() & locked.keys())


def test_the_uv_in_use_is_the_locked_one() -> None:
    said = subprocess.run([UV, "--version"], capture_output=True, text=True, check=True).stdout
    assert blocks("tools.lock")["uv"].startswith(f"uv=={said.split()[1]} ")


def exchanged(folder: Path, *, name: str, version: str) -> None:
    """Write a wheel of this name and version with other content."""
    files = {
        f"{name}/__init__.py": b"OWNED = True\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{name}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    coded = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for path, data in files.items()}
    record = "".join(f"{p},sha256={coded[p].decode().rstrip('=')},{len(data)}\n" for p, data in files.items())
    files[f"{name}-{version}.dist-info/RECORD"] = record.encode()
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)


def test_an_exchanged_file_is_not_installed(tmp_path: Path) -> None:
    entry = blocks("dev.lock")["iniconfig"]
    exchanged(tmp_path, name="iniconfig", version=entry.split("==")[1].split()[0])
    (tmp_path / "own.lock").write_text(entry)
    (tmp_path / "tools.lock").write_text((ROOT / "tools.lock").read_text())
    (tmp_path / "none.lock").write_text(entry.split()[0] + "\n")
    for lock in ("own.lock", "none.lock"):
        done = subprocess.run(
            [UV, *flags(), "--no-index", "--find-links", ".", "--target", "site", "-r", lock],
            cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode and "hash" in done.stderr.lower(), lock
        assert not (tmp_path / "site" / "iniconfig").exists()
