"""Create small corpora for tests: a repository with git and DVC, sealed months and the results of stages.

The tests of annotation, privacy, registry, release and training describe their records with these functions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import yaml

from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import path_of
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.table_files import Column
from pipelines.store.vault.vault import Vault
from pipelines.workspace import trust
from pipelines.workspace.git import git

ROOT = Path(__file__).resolve().parents[1]
SECRET = "5e" * 64
MONTHS = ("2022-11", "2022-12")
NOW = datetime(2023, 1, 2, 9, tzinfo=UTC)
# What `dvc init` writes: a twentieth of a processor second each time.
DVC = {".dvc/config": "", ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n", ".dvcignore": ""}
# What each corpus repository of a test contains.
BASIC = {"data/.gitignore": "*.parquet\n"}
ANNOTATED = BASIC | {"annotations/.gitignore": "*.parquet\n", "snapshot/.gitignore": "*\n!.gitignore\n"}


# The only command of such a repository: a line for the shell.
SHELL = {
    ".gitignore": "__pycache__/\n",
    "pipelines/__init__.py": "",
    "pipelines/__main__.py": "import subprocess, sys\nsys.exit(subprocess.run(sys.argv[1], shell=True).returncode)\n",
}


def staged(dvc_yaml: str) -> str:
    """Return a ``dvc.yaml`` whose command lines are run by the command of :data:`SHELL`."""
    stages = yaml.safe_load(dvc_yaml)
    for stage in stages["stages"].values():
        shape = stage.get("do", stage)
        shape["cmd"] = f"python -m pipelines {shlex.quote(shape['cmd'])}"
    return yaml.safe_dump(stages)


def code_of(folder: Path, files: Mapping[str, str]) -> Path:
    """Commit these files, and DVC's own, to a new repository in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**DVC, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "code", cwd=folder)
    return folder


def begin(settings: Settings, *, code: Path) -> None:
    """Create the bare corpus repository, with the branches ``code`` and ``corpus``, and an empty remote."""
    git("clone", "--quiet", "--bare", str(code), settings.repo)
    for branch in ("code", "corpus"):
        git("--git-dir", settings.repo, "branch", branch, "main")
    git("--git-dir", settings.repo, "config", "receive.denyNonFastForwards", "true")
    sign(settings)
    if "://" not in settings.remote:
        Path(settings.remote).mkdir(parents=True, exist_ok=True)


def sign(settings: Settings) -> None:
    """Sign the code at the tip, as an operator who reviewed it does."""
    trust.sign(settings, "corpus", who="tests", why="a test", cwd=Path(settings.repo), to=settings.repo)


def own_scheme(root: Path, *, like: str) -> str:
    """Write a scheme of a team's own into a checkout or clone, with the labels of ``like``; return its name."""
    (root / "schemes").mkdir(exist_ok=True)
    text = path_of(like).read_text().replace(f"name: {like}\n", "name: own\n", 1)
    (root / "schemes" / "own.yaml").write_text(text)
    return "own"


def full(table: str, **values: object) -> dict[str, object]:
    """Return a row that keeps the table's contract; columns that are not given are null, or have the least value."""
    return {column.name: least(column) for column in tables.CONTRACTS[table].columns} | values


def least(column: Column) -> object:
    """Return the least value that a column may have."""
    if column.nullable:
        return None
    if pa.types.is_list(column.type):
        return []
    if pa.types.is_string(column.type):
        return next(iter(column.accepted_values), "-")
    if pa.types.is_timestamp(column.type):
        return datetime(1970, 1, 1, tzinfo=UTC)
    if pa.types.is_boolean(column.type):
        return False
    if pa.types.is_fixed_size_binary(column.type):
        return bytes(column.type.byte_width)
    return b"" if column.sealed else column.accepted_range[0] or 0


def vote_row(record_id: str, labeller: str, *, labels: Iterable[str], **values: object) -> dict[str, object]:
    """Return a labeller's vote on a record in the category ``labels``, at a tenth of a cent."""
    usual = {
        "category": "labels",
        "prompt": "p",
        "outcome": "vote",
        "reason": "",
        "repaired": False,
        "input_tokens": 100,
        "output_tokens": 10,
        "cost": 0.001,
    }
    return full("votes", record_id=record_id, image=0, labeller=labeller, labels=sorted(labels), **usual | values)


def write_table(path: Path, rows: Iterable[Mapping[str, object]], *, name: str) -> None:
    """Write rows that :func:`full` completes as a table that has no sealed column, such as the result of a stage."""
    whole = [full(name, **row) for row in rows]
    tables.write(pa.Table.from_pylist(whole, schema=tables.SCHEMAS[name]), path, name=name)


def admit(vault: Vault, fullnames: Mapping[str, str], *, corpus: str, month: str, now: datetime = NOW) -> None:
    """Admit the records of a month; ``fullnames`` is keyed by record id."""
    vault.admit(list(fullnames.items()), corpus=corpus, month=month, now=now)


def write_posts(root: Path, rows: Sequence[Mapping[str, object]], *, corpus: str, month: str, vault: Vault) -> Path:
    """Write and seal the posts of a month."""
    path = root / "data" / corpus / month / "records.parquet"
    write_rows([full("records", **row) for row in rows], path, name="records", vault=vault)
    return path


def write_images(
    root: Path, shards: Sequence[Sequence[Mapping[str, object]]], *, corpus: str, month: str, vault: Vault
) -> list[Path]:
    """Write and seal the images of a month, one file for each shard."""
    paths = []
    for number, rows in enumerate(shards):
        path = root / "data" / corpus / month / "images" / f"{number:03d}.parquet"
        # a picture that is mostly paper has near-duplicates of its own
        whole = [full("images", **{"energy": 50.0} | row) for row in rows]
        write_rows(whole, path, name="images", vault=vault)
        paths.append(path)
    return paths


def write_splits(root: Path, splits: Mapping[tuple[str, int], str], *, corpus: str) -> None:
    """Write the result of the stage ``split``; in each split, every second item is in the group of the one before."""
    before: dict[str, tuple[str, int]] = {}
    rows = []
    for (record_id, image), split in splits.items():
        first = before.pop(split, None)
        if first is None:
            before[split] = (record_id, image)
        group = "/".join(map(str, first or (record_id, image)))
        rows.append({"record_id": record_id, "image": image, "group": group, "split": split})
    write_table(root / "snapshot" / corpus / "split" / "splits.parquet", rows, name="splits")


def write_examples(snapshot: Path, examples: Iterable[str] = ()) -> None:
    """Write the result of the stage ``few_shot``: the records that prompts show."""
    rows = [{"record_id": record_id, "image": 0} for record_id in examples]
    write_table(snapshot / "few_shot" / "examples.parquet", rows, name="examples")


def gold_rows(labels: Mapping[tuple[str, int], Mapping[str, Iterable[str]]]) -> list[dict[str, object]]:
    """Return rows of gold, decided by the sandbox's truth, for the labels of each item and category."""
    return [
        full("gold", record_id=record_id, image=image, category=category, labels=sorted(found), how="truth")
        for (record_id, image), categories in labels.items()
        for category, found in categories.items()
    ]
