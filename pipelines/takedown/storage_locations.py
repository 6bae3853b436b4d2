"""List every place that may hold content or ids, and how a takedown clears it.

Everything that this software writes belongs to one of these places. A test fails if a setting, a folder of
``CORPUS_HOME``, an out of ``dvc.yaml`` or a module that writes is in none of them (tests/privacy/test_sinks.py). A
change that adds a store also says here how a deletion reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sqlalchemy as sa

from pipelines.core.config.settings import Settings
from pipelines.workspace.address import local_path

Holds = Literal["content", "ids", "nothing"]


@dataclass(frozen=True)
class Sink:
    """One kind of storage place that may contain content of posts or record ids.

    Args:
        name: the name of the place.
        holds: the most sensitive data in the place: content (sealed or not), record ids, or neither.
        purged: what a takedown does there; ``""`` if there is nothing to do.
        keeps: what remains of a record after a takedown, and why; ``""`` for nothing.
        paths: the place's files and folders on this machine.
        settings: the fields of ``Settings`` with the place's location.
        outs: patterns of the outputs in ``dvc.yaml`` that are stored there.
        writers: the modules that write there, below ``pipelines``, ``plugins``, ``sandbox`` or the root.
    """

    name: str
    holds: Holds
    purged: str
    keeps: str = ""
    paths: Callable[[Settings], list[Path]] = lambda settings: []
    settings: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


def _home(*names: str) -> Callable[[Settings], list[Path]]:
    return lambda settings: sorted(path for name in names for path in settings.home.glob(name))


def _database(field: str) -> Callable[[Settings], list[Path]]:
    def found(settings: Settings) -> list[Path]:
        url = sa.make_url(getattr(settings, field))
        if url.get_backend_name() != "sqlite" or not url.database:
            return []
        path = Path(url.database)
        return sorted(path.parent.glob(f"{path.name}*"))

    return found


SINKS = (
    Sink(
        "objects",
        "content",
        "tables are rewritten without the rows; the old objects of every version, and the stage results that name "
        "them, are removed (`rewrite`, `objects`)",
        paths=lambda settings: [settings.cache, *([] if "://" in settings.remote else [Path(settings.remote)])],
        settings=("cache", "remote", "remote_options"),
        outs=("data/*", "annotations/*", "snapshot/*"),
        writers=(
            "annotate/agreement", "annotate/gold", "annotate/imports/commit", "annotate/rounds/store",
            "collect/collect", "collect/images", "collect/month_ledger", "collect/partition", "collect/texts",
            "curate/dedupe/dedupe", "curate/sample", "curate/split", "operate/doctor/stores", "label/few_shot",
            "label/memes/rationales", "label/silver/silver", "label/votes", "metrics/recall_constraints",
            "moderation/moderation", "predict/baselines", "predict/predict_finetuned", "predict/prompted",
            "report/charts", "report/report", "store/exclusions", "store/seal", "store/table_files", "store/tables",
            "takedown/object_versions", "takedown/redaction", "train/classifiers/train", "train/predictors/knn",
            "train/predictors/training_records", "workspace/results", "workspace/stages",
        ),
    ),
    Sink(
        "weights",
        "content",
        "models that were trained on the records are marked stale at once, trained again, and refused by the registry; "
        "at the deadline their weights are removed from cache, remote, every version, MLflow and verified copies "
        "(`models`, the daily `deletion_sweep`)",
        keeps="weights that may remember training records, for `takedown.weights_days`; copies that consumers have",
        paths=_home("models"),
        outs=("snapshot/${item.corpus}/finetuned/*",),
        writers=(
            "crisis_corpus/trusted", "train/predictors/adapter", "train/predictors/calibrated_predictor",
            "train/predictors/finetuned", "train/sft/sft",
        ),
    ),
    Sink(
        "repository",
        "ids",
        "pointers and `dvc.lock` are changed to the new objects; committed lines with the ids are removed (`rewrite`)",
        keeps="ids in lines that were committed to git by a user or an early import: git history is not rewritten",
        paths=lambda settings: [path for path in [local_path(settings.repo)] if path],
        settings=("repo",),
        outs=("metrics/*",),
        writers=(
            "annotate/agreement", "annotate/forms/manifest", "core/config/added_corpora", "core/config/new_profile",
            "analysis/analysis", "curate/quality", "evaluate/evaluate", "label/injection_test", "predict/pins",
            "store/metrics_file", "takedown/pointers", "takedown/rewrite", "train/finetune", "workspace/clone",
            "workspace/parameters", "workspace/repository",
        ),
    ),
    Sink(
        "vault",
        "content",
        "key and Reddit name are deleted and overwritten (`tombstone`)",
        keeps="the tombstone and the splits ever assigned to the id: without them the record could be collected again; "
        "how many ids each list of training records lost, by its digest",
        paths=_database("vault_url"),
        settings=("vault_url",),
        writers=("store/vault/database",),
    ),
    Sink(
        "takedowns",
        "ids",
        "",
        keeps="`tombstones.json`, to be kept apart from the vault and replayed after a restore; receipts hold counts",
        paths=_home("takedowns"),
        writers=("takedown/object_versions", "takedown/receipts", "takedown/takedown"),
    ),
    Sink(
        "index",
        "ids",
        "the entries of removed objects are removed with them (`objects`), on other hosts by their next sweep; each id "
        "is a digest under a key of the project",
        paths=_home("object_index"),
        writers=("takedown/record_index",),
    ),
    Sink(
        "requests",
        "ids",
        "the file is removed when all is done",
        paths=_home("requests"),
        writers=("cli/takedown",),
    ),
    Sink(
        "answers",
        "content",
        "rows are deleted, the record is removed from pending batches, the file is rewritten (`purge`)",
        paths=_database("answers_url"),
        settings=("answers_url",),
        writers=("store/answers", "takedown/purge"),
    ),
    Sink(
        "annotation",
        "content",
        "items are removed from the queues of every open round, lines from supplied files (`purge`)",
        paths=lambda settings: [settings.annotation_files, settings.label_studio],
        settings=("annotation_files", "label_studio"),
        writers=(
            "annotate/backends/files", "annotate/backends/label_studio", "annotate/backends/label_studio_server",
            "annotate/backends/label_studio_script", "llm/pictures",
        ),
    ),
    Sink(
        "annotation server of your own",
        "content",
        "items are removed from the queues through its API (`purge`)",
        keeps="freed pages, search index and backups of that server, which its operator must clear",
        settings=("label_studio_url",),
    ),
    Sink(
        "refresh",
        "content",
        "rows of posts that wait for their month, and ids of published ones, are deleted, the file is rewritten "
        "(`purge`)",
        paths=_database("refresh_url"),
        settings=("refresh_url",),
        writers=("collect/refresh_store",),
    ),
    Sink(
        "resume",
        "content",
        "emptied, because pages of live sources are sealed under a key of the project and have no record ids (`purge`)",
        paths=_home("resume"),
        writers=("collect/sources/arctic_shift",),
    ),
    Sink(
        "train",
        "content",
        "checkpoints of the corpus are removed, because their weights may remember the record (`purge`)",
        paths=_home("train"),
        writers=(
            "predict/repeats", "train/classifiers/checkpoint", "train/classifiers/encoder_training",
            "train/classifiers/loop", "train/predictors/adapter", "train/predictors/instruct",
            "train/predictors/knn", "train/sft/trainer",
        ),
    ),
    Sink(
        "scratch",
        "content",
        "clones of ended processes are removed (`purge`); clones in use are counted and are removed with their task",
        paths=_home("scratch"),
        writers=(
            "operate/doctor/deployment", "collect/read/ocr/confined_engine", "models/pretrained/backbones",
            "registry/candidate", "train/architecture", "workspace/scratch",
        ),
    ),
    Sink(
        "lineage",
        "ids",
        "copies of id lists and of verified versions, and rows of kept predictions are removed (`purge`, `models`)",
        paths=_home("registry", "scored"),
        writers=("predict/batch_predict", "takedown/affected_models"),
    ),
    Sink(
        "models",
        "ids",
        "the ids are removed from the pack's list; the version is stale and, above a share, withdrawn (`models`); at "
        "the deadline the alias moves to a clean version or is removed, and the stale version is deleted",
        keeps="the version's weights until the deadline, as under weights; names and numbers of its runs",
        paths=_home("mlflow", "mlflow.sqlite*"),
        settings=("mlflow_tracking_uri",),
        writers=(
            "packaging/card", "packaging/model", "packaging/model_described", "packaging/pack",
            "packaging/register", "registry/versions", "takedown/affected_models", "train/tracking",
        ),
    ),
    Sink(
        "journal",
        "nothing",
        "",
        paths=lambda settings: [*_database("journal_url")(settings), settings.home / "journal.pub"],
        settings=("journal_url",),
        writers=("crisis_corpus/journal", "registry/journal"),
    ),
    Sink(
        "releases",
        "ids",
        "on the next day of the schedule `release.removal`, rows leave the packages, and their ids, which are the "
        "release's own, go to the removal lists (`run-pending`)",
        keeps="until that day, labels and the address, which the release's key decrypts; then the release's own id on "
        "its removal list; copies that consumers have",
        paths=_home("releases"),
        writers=("crisis_corpus/hydrate", "release/access", "release/release_store", "release/rekey"),
    ),
    Sink(
        "sources",
        "content",
        "",
        keeps="dumps, which are not changed: the tombstone keeps their records out",
        paths=lambda settings: [settings.dumps, settings.sandbox],
        settings=("dumps", "sandbox"),
        writers=(
            "collect/read/language", "collect/read/decode", "collect/read/decode_child",
            "collect/read/ocr/ocr_child", "crisis_corpus_sandbox/reddit/build", "crisis_corpus_sandbox/reddit/draw",
            "crisis_corpus_sandbox/reddit/image_host", "crisis_corpus_sandbox/reddit/listing",
            "crisis_corpus_sandbox/vendors/vendors",
        ),
    ),
    Sink(
        "providers of models",
        "content",
        "",
        keeps="requests, for as long as the provider's terms state: name the days in your assessment",
    ),
    Sink(
        "backups",
        "content",
        "",
        keeps="the vault's keys and the earlier tables, until `corpus backup --keep-days` deletes the backup; the "
        "tombstones beside the backups keep them from coming back: see the rules in docs/privacy.md",
        settings=("vault_backup",),
        writers=(
            "operate/backup/backup", "operate/backup/database_copies", "operate/backup/pool",
            "operate/backup/restore",
        ),
    ),
    Sink(
        "clones and opened items of people",
        "content",
        "",
        keeps="tables from `corpus clone`: their content is unreadable; users must delete the ids themselves, and the "
        "folders that `corpus errors --content` wrote as soon as they were read",
        writers=("evaluate/error_items", "report/dvc_data", "report/export", "report/published", "report/report"),
    ),
    Sink(
        "exports and repositories on a hub",
        "content",
        "",
        keeps="repositories on a hub that were pushed from here, until a person replaces or removes them by the "
        "command that `corpus export list` and the takedown's output print; folders of `corpus export`, which belong "
        "to the person who wrote them, and copies that others downloaded",
        settings=("hub_url",),
        writers=("release/export/folder", "release/export/model_folder", "release/export/release_folder"),
    ),
    Sink(
        "Airflow and logs",
        "nothing",
        "",
        paths=_home(
            "airflow", "airflow.dump", "graph", "logs", "run", "ports.json", "services.env", "summary", "dvc-airflow*",
        ),
        writers=(
            "cli/airflow", "operate/services/airflow_setup", "operate/services/postgres",
            "operate/services/services", "operate/doctor/servers", "core/forkserver",
            "operate/housekeeping/airflow_rows", "operate/housekeeping/housekeeping",
            "crisis_corpus_sandbox/demo/promotions", "operate/summary/written", "core/timing",
            "workspace/dag_graph",
        ),
    ),
    Sink(
        "house",
        "nothing",
        "",
        paths=_home("secret", "followed", "locks", "rounds.lock", "kernels", "label-studio-env"),
        settings=("home", "label_studio_env"),
        writers=(
            "core/config/private_file", "core/config/settings", "takedown/purge", "store/vault/engine",
            "store/vault/locks",
        ),
    ),
)  # fmt: skip
