"""Resolve the stages of the corpus branch with DVC into a small file, from which Airflow renders the Dags.

The file is below ``CORPUS_HOME``. Parsing a Dag may neither read a git server nor take seconds, and a stage runs the
code and parameters of the corpus branch: without the file the Dags would show the tasks of the checkout. ``python -m
pipelines.workspace.dag_graph`` writes the graph of a checkout, for Dags that are parsed before there is a corpus.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import FILES, Params, by_file, load, overlay, parse, parse_all
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, name_of
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

log = logging.getLogger(__name__)
PIPELINES = Path(__file__).resolve().parents[1]
SOURCES = ("dvc.yaml", *FILES, rows.FILE)


def file(home: Path) -> Path:
    """Return the path of the stage graph's file below ``home``, which `dvc_airflow.graph` reads."""
    return home / "graph" / "corpus.json"


def refresh(settings: Settings) -> bool:
    """Write the stage graph of the corpus branch to its file if its sources changed; return whether it was written."""
    changed = False
    # again after writing: a command that began earlier may have written the graph of an earlier commit meanwhile
    while not current(settings.home, texts := _published(settings)):
        write(file(settings.home), texts)
        changed = True
    return changed


def follow(settings: Settings) -> None:
    """Refresh the stage graph after a commit to the corpus branch; log a warning if that fails.

    A failure is no error, because the commit is already published.
    """
    from dvc.exceptions import DvcException

    try:
        refresh(settings)
    except (CorpusError, DvcException, OSError) as error:
        detail = error if isinstance(error, CorpusError) else type(error).__name__
        log.warning("Airflow keeps the Dags of the earlier graph (%s); run `corpus airflow refresh`.", detail)


def _published(settings: Settings) -> dict[str, str]:
    with history(settings, depth=1) as git_dir:
        return read(lambda name: git("--git-dir", str(git_dir), "show", f"{BRANCH}:{name}"))


def read(show: Callable[[str], str]) -> dict[str, str]:
    """Return the texts of the stage graph's sources, ``dvc.yaml`` and the files of the parameters, by name.

    ``show`` returns the text of a file.
    """
    return {name: show(name) for name in SOURCES}


def current(home: Path, texts: Mapping[str, str]) -> bool:
    """Return whether the existing file of the stage graph was made from these source texts."""
    try:
        return bool(json.loads(file(home).read_bytes())["digest"] == _digest(texts))
    except (OSError, ValueError, KeyError):
        return False


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Resolve the stage graph from the texts of its source files, and write it to ``path`` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _resolved(_digest(texts), tuple(texts.items()), path.parent)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


@lru_cache(maxsize=4)
def _resolved(digest: str, texts: tuple[tuple[str, str], ...], folder: Path) -> str:
    return json.dumps({"digest": digest, **resolve(dict(texts), folder=folder)}, indent=1)


def _digest(texts: Mapping[str, str]) -> str:
    # with this module, so that a newer form of the file replaces an older one
    return hashlib.sha256(json.dumps(dict(texts)).encode() + Path(__file__).read_bytes()).hexdigest()


def resolve(texts: Mapping[str, str], *, folder: Path | None = None) -> dict[str, Any]:
    """Return the content of the stage graph's file, resolved from the texts of :data:`SOURCES`.

    The keys are ``stages`` (name, description, upstream stages and package of each, its corpus, its key without that,
    and of a row of a model its task and ``answers``: ``computed`` here, or ``asked`` of labellers, as stored votes
    are), ``packages`` (the first sentence of their documentation), ``corpora`` (the section),
    ``ensembles`` (by corpus), ``providers`` (those that label), ``asking`` (by corpus the other steps that ask
    providers), ``months`` (by corpus the steps of a month, in order: what to run, with ``{month}`` and ``{shard}`` to
    fill in, and the globs of its files), ``dags`` (by corpus and Dag its last stages, and those that another Dag has
    run), ``protocols`` (the corpora that people annotate), ``registry`` (the names of registered models),
    ``batch_predict`` (the section), ``refresh`` (by corpus the schedule on which listings are read, or ``None``).

    With the text of a ``profile``, its values are laid over the parameters, and the rows are those of the result;
    the current folder is then the checkout, whose label schemes are read.
    """
    import yaml
    from dvc.repo import Repo

    values = parse_all({name: texts[name] for name in FILES})
    if "profile" in texts:
        values = complete(overlay(values, parse(texts["profile"], where="the profile")))
    home = packages()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".resolve-") as scratch:
        here = Path(scratch)
        (here / "dvc.yaml").write_text(texts["dvc.yaml"])
        for name, sections in by_file(values).items():
            (here / name).write_text(yaml.safe_dump(sections))
        params = load(here, parts=False)
        (here / rows.FILE).write_text(texts[rows.FILE])
        found = rows.resolve(params, root=Path()) if "profile" in texts else rows.read(here)
        known = found.model_dump(mode="json", exclude_none=True)
        (here / rows.FILE).write_text(yaml.safe_dump({"rows": known}))
        keyed = {key: row for section in known.values() for key, row in section.items()}
        (here / ".dvc").mkdir()
        (here / ".dvc" / "config").write_text(f"[core]\n    no_scm = true\n    site_cache_dir = {here / 'site'}\n")
        with Repo(scratch) as repo:
            stages = {stage.name: stage for stage in repo.index.stages if getattr(stage, "name", None)}
            resolved = [
                {
                    "name": name,
                    "desc": stage.desc or "",
                    "upstream": sorted(s.name for s in repo.index.graph.successors(stage) if hasattr(s, "name")),
                    "package": home.get(name.partition("@")[0], ""),
                    **_row(name.partition("@")[2], keyed, params=params),
                }
                for name, stage in sorted(stages.items())
            ]
    used = {stage["package"] for stage in resolved if stage["package"]}
    asked = [values["labellers"][name] for names in values["votes"]["labellers"].values() for name in names]
    ensembles = values["silver"]["ensembles"]
    return {
        "stages": resolved,
        "months": {name: _month(name, str(corpus["content"])) for name, corpus in values["corpora"].items()},
        "dags": {name: _dags(name, resolved, ensembles=ensembles.get(name) or ()) for name in values["corpora"]},
        "packages": {name: _sentence(name) for name in sorted(used)},
        "corpora": values["corpora"],
        "ensembles": ensembles,
        "protocols": sorted(values["round"]["protocol"]),
        "registry": sorted(values["registry"]),
        "batch_predict": values["batch_predict"],
        "refresh": {name: _schedule(name, params) for name in params.corpora},
        "asking": {name: _asking(name, values) for name in values["corpora"]},
        "providers": sorted({labeller["provider"] for labeller in asked if labeller["kind"] == "remote"}),
    }


def _month(corpus: str, items: str) -> list[dict[str, list[str]]]:
    """Return the steps of a month of a corpus; the second processes each item (``items``) and is run for each shard."""
    data, work, which = f"data/{corpus}/{{month}}", f"work/{corpus}/{{month}}", [corpus, "--month", "{month}"]
    return [
        {"argv": ["collect", *which], "out": [f"{work}/*.parquet"]},
        {
            "argv": [items, *which, "--shard", "{shard}"],
            "out": [f"{data}/{items}/*.parquet", f"{work}/drops/*.parquet"],
        },
        {"argv": ["partition", *which], "out": [f"{data}/*.parquet"]},
    ]


def _dags(corpus: str, stages: Sequence[Mapping[str, Any]], *, ensembles: Sequence[str]) -> dict[str, Any]:
    """Return ``targets`` and ``below`` of each Dag of a corpus; a stage of a team is in the first that can run it."""
    upstream = {stage["name"]: stage["upstream"] for stage in stages}
    silver = [f"silver@{corpus}-{name}" for name in ensembles]
    dags = {
        "dataset": {"targets": [f"quality@{corpus}"], "below": []},
        "label": {
            "targets": [f"injection_test@{corpus}-{name}" for name in ensembles],
            "below": [f"sample@{corpus}"],
        },
        "benchmark": {"targets": [f"report@{corpus}"], "below": silver or [f"sample@{corpus}"]},
    }
    has = {dag: {*ordered(upstream, targets=found["targets"])} for dag, found in dags.items()}
    # the last two are run where a model reads them, and by the Dag of champions
    known = {name.partition("@")[0] for names in has.values() for name in names} | {"rationales", "batch_predict"}
    for name, above in ((stage["name"], stage["upstream"]) for stage in stages if stage["corpus"] == corpus):
        if name.partition("@")[0] not in known and above:
            first = next((dag for dag, names in has.items() if {*above} <= names), None)
            if first:
                dags[first]["targets"].append(name)
    return dags


def ordered(upstream: Mapping[str, list[str]], *, targets: Iterable[str]) -> list[str]:
    """Return the target stages and all stages upstream of them, in topological order."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in found:
            for above in upstream.get(name, ()):
                visit(above)
            found[name] = None

    for target in targets:
        visit(target)
    return list(found)


def _schedule(corpus: str, params: Params) -> str | None:
    name = params.listing(corpus)
    listing = params.sources[name].listing if name else None
    return listing.schedule if listing else None


def packages() -> dict[str, str]:
    """Return the package of `pipelines` of each module, which may be a step; the commands of the steps are left out."""
    return {path.stem: path.relative_to(PIPELINES).parts[0] for path in PIPELINES.glob("[!_]*/**/*.py")
            if path.relative_to(PIPELINES).parts[0] != "cli"}  # fmt: skip


def _sentence(package: str) -> str:
    text = ast.get_docstring(ast.parse((PIPELINES / package / "__init__.py").read_text())) or ""
    return text.partition("\n")[0]


def _row(key: str, keyed: Mapping[str, Mapping[str, Any]], *, params: Params) -> dict[str, str]:
    """Return the corpus of a stage, its key without that, the task of its row, and where its answers come from."""
    row, corpus = keyed.get(key, {}), rows.owner(key, corpora=params.corpora, rows=keyed)
    rest = key.removeprefix(corpus).removeprefix("-")
    told = {"corpus": corpus, "rest": rest, "task": str(row.get("task", ""))}
    if "model" not in row:
        return told
    entry = params.models[row["model"]]
    asked = "seed" not in row and (entry.labeller or entry.votes or entry.silver)
    return told | {"answers": "asked" if asked else "computed"}


def _asking(corpus: str, values: Mapping[str, Any]) -> list[str]:
    """Return the steps of a corpus, beside votes, for which the parameters name models or systems to ask."""
    models, audited = values["models"], (values.get("moderation") or {}).get("systems") or {}
    fitted = (values["train"]["rows"].get(corpus) or {}).get("models", ())
    asked = {
        "moderation": bool(audited.get(corpus)),
        "rationales": any(models[name].get("rationales") for name in fitted),
        "predict": any(models[name].get("labeller") for name in values["predict"]["rows"].get(corpus) or ()),
    }
    return sorted(step for step, asks in asked.items() if asks)


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]), json.load(sys.stdin))
    except Exception as error:  # any message of DVC or of the parameters becomes the Dag's import error
        sys.exit(f"{name_of(error)}: {error}")
