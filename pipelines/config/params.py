"""All configuration, read in one place: ``params.yaml`` with a profile over it, and the ``CORPUS_*`` environment.

Steps receive frozen models; nothing else in the package reads a YAML file or the environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from pipelines.config.registry import Chosen, Promote
from pipelines.config.release import Release
from pipelines.config.sections import (
    Agreement,
    ArcticShift,
    Collect,
    Corpus,
    Decode,
    Dedupe,
    Dump,
    EncoderModel,
    Ensemble,
    EnsembleModel,
    Evaluate,
    Fetch,
    Finetune,
    Fingerprint,
    FusionModel,
    Gold,
    ImageModel,
    KnnModel,
    Labeller,
    Language,
    LocalModel,
    M3hModel,
    Model,
    Ocr,
    OfflineLabeller,
    Predict,
    Price,
    Probe,
    Prompted,
    PromptedModel,
    Provider,
    Reddit,
    RegisteredModel,
    RemoteLabeller,
    Report,
    Round,
    Sample,
    Sandbox,
    SavedModel,
    Score,
    Section,
    SftModel,
    Silver,
    Source,
    SourceName,
    Split,
    TextModel,
    Texts,
    Train,
    Untuned,
    VotesModel,
    VotesParams,
    YadavModel,
)
from pipelines.config.sweep import Sweep
from pipelines.config.takedown import Takedown
from pipelines.errors import BadParams

__all__ = [
    "Agreement",
    "ArcticShift",
    "Collect",
    "Corpus",
    "Decode",
    "Dedupe",
    "Dump",
    "EncoderModel",
    "Endpoint",
    "Ensemble",
    "EnsembleModel",
    "Evaluate",
    "Fetch",
    "Finetune",
    "Fingerprint",
    "FusionModel",
    "Gold",
    "ImageModel",
    "KnnModel",
    "Labeller",
    "Language",
    "LocalModel",
    "M3hModel",
    "Model",
    "Ocr",
    "OfflineLabeller",
    "Params",
    "Predict",
    "Price",
    "Probe",
    "Prompted",
    "PromptedModel",
    "Provider",
    "Reddit",
    "RegisteredModel",
    "RemoteLabeller",
    "Report",
    "Round",
    "Sample",
    "Sandbox",
    "SavedModel",
    "Score",
    "Section",
    "Settings",
    "SftModel",
    "Silver",
    "Source",
    "SourceName",
    "Split",
    "TextModel",
    "Texts",
    "Train",
    "Untuned",
    "VotesModel",
    "VotesParams",
    "YadavModel",
    "load",
    "overlay",
]


# Ours: what DVC takes as one key of `models.<name>`, and every file system as the name of a folder.
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class Params(Section):
    """Everything under ``params.yaml``; ``profile`` names the one that a corpus repository was begun with."""

    profile: str | None
    corpora: dict[str, Corpus]
    sources: dict[SourceName, Source]
    dump: Dump
    reddit: Reddit
    arctic_shift: ArcticShift
    collect: Collect
    fetch: Fetch
    decode: Decode
    ocr: Ocr
    texts: Texts
    language: Language
    fingerprint: Fingerprint
    dedupe: Dedupe
    sample: dict[str, Sample]
    split: dict[str, Split]
    score: Score
    round: Round
    agreement: Agreement
    gold: dict[str, Gold]
    providers: dict[str, Provider]
    labellers: dict[str, Labeller]
    ensembles: dict[str, Ensemble]
    votes: VotesParams
    silver: Silver
    probe: Probe
    models: dict[str, Model]
    prompted: Prompted
    finetune: Finetune
    predict: Predict
    untuned: Untuned
    evaluate: Evaluate
    report: Report
    train: Train
    registry: dict[str, tuple[Chosen, ...]]
    promote: Promote
    scoring: dict[str, tuple[str, ...]]
    sweep: Sweep
    takedown: Takedown
    release: Release
    sandbox: Sandbox | None = None

    @model_validator(mode="after")
    def _known_names(self) -> Params:
        """Refuse a reference to a labeller, a provider, an ensemble or a corpus that is not described."""
        members = {name for ensemble in self.ensembles.values() for name in ensemble.members}
        remote = [labeller for labeller in self.labellers.values() if isinstance(labeller, RemoteLabeller)]
        candidates = {chosen.model for several in self.registry.values() for chosen in several}
        asked: dict[str, tuple[set[str], Mapping[str, object]]] = {
            "labellers": (set(self.votes.labellers) | members, self.labellers),
            "providers": ({labeller.provider for labeller in remote}, self.providers),
            "ensembles": (set(self.silver.ensembles), self.ensembles),
            "models": (set(self.train.models) | set(self.prompted.models) | candidates, self.models),
            "corpora": (set(self.sample) | set(self.split) | set(self.gold) | set(self.round.protocol), self.corpora),
        }
        for section, (names, known) in asked.items():
            if missing := sorted(names - set(known)):
                raise ValueError(f"{section} does not describe {', '.join(missing)}")
        for name, ensemble in self.ensembles.items():
            if ensemble.fallback is not None and ensemble.fallback not in ensemble.members:
                raise ValueError(f"the fallback of ensemble {name} is none of its members")
        return self

    @model_validator(mode="after")
    def _models(self) -> Params:
        """Refuse a model that asks a labeller that is not described, or whose name DVC would not find."""
        if wrong := ", ".join(repr(name) for name in self.models if not MODEL_NAME.fullmatch(name)):
            raise ValueError(
                f"models: {wrong} cannot be a name: it begins with a lower-case letter or a digit and goes on with "
                "these, - and _ (DVC reads a dot as a step down)"
            )
        for name, model in self.models.items():
            if isinstance(model, M3hModel | PromptedModel) and model.labeller not in self.labellers:
                raise ValueError(f"model {name} asks '{model.labeller}', which labellers does not describe")
        return self


def overlay(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` merged in: mappings merge, everything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def load(root: Path = Path(), *, profile: str | None = None) -> Params:
    """Read ``root/params.yaml`` with ``root/profiles/<profile>.yaml`` over it, by the parser that DVC reads it by.

    Raises:
        BadParams: naming the file and every key at fault, or the line that cannot be read.
    """
    where = root / "params.yaml"
    try:
        values = YAML(typ="safe").load(where.read_text())
        if profile:
            where = root / "profiles" / f"{profile}.yaml"
            values = overlay(values, YAML(typ="safe").load(where.read_text()) or {})
        return Params.model_validate(values)
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        detail = f"is not YAML ({type(error).__name__}); within braces a value with a colon needs quotes"
        raise BadParams(where=f"{where.name}{line}", detail=detail) from None
    except (OSError, YAMLError) as error:
        raise BadParams(where=where.name, detail=f"cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadParams(where=where.name, detail=faults) from None


def _port(variable: str) -> int | None:
    text = os.environ.get(variable)
    if text and not text.isdecimal():
        raise BadParams(where=variable, detail="needs a port number")
    return int(text) if text else None


class Endpoint(Section):
    """Where a provider answers and with which key; ``url`` is ``None`` for the provider's own address."""

    url: str | None
    key: SecretStr


class Settings(Section):
    """Addresses and secrets, from ``CORPUS_*`` environment variables (docs/configuration.md lists them)."""

    home: Path
    vault_url: str
    repo: str
    remote: str
    cache: Path
    dumps: Path
    sandbox: Path
    reddit_client_id: str
    reddit_client_secret: str
    reddit_url: str
    reddit_oauth_url: str
    arctic_shift_url: str
    contact: str
    sandbox_port: int | None
    mlflow_tracking_uri: str | None
    answers_url: str
    journal_url: str
    label_studio: Path
    label_studio_env: Path
    label_studio_port: int | None
    label_studio_url: str | None
    label_studio_key: SecretStr
    argilla_url: str
    argilla_key: SecretStr
    argilla_workspace: str
    annotation_files: Path

    @classmethod
    def from_env(cls) -> Settings:
        """Read the environment; everything defaults to a place under ``CORPUS_HOME`` (``var``)."""
        home = Path(os.environ.get("CORPUS_HOME", "var")).resolve()

        def env(name: str, default: str) -> str:
            return os.environ.get(f"CORPUS_{name}", default)

        return cls(
            home=home,
            vault_url=env("VAULT_URL", f"sqlite:///{home}/vault.sqlite"),
            repo=env("REPO", f"{home}/corpus.git"),
            remote=env("REMOTE", f"{home}/remote"),
            cache=Path(env("CACHE", f"{home}/cache")),
            dumps=Path(env("DUMPS", f"{home}/sandbox/dumps")),
            sandbox=Path(env("SANDBOX", f"{home}/sandbox")),
            reddit_client_id=env("REDDIT_CLIENT_ID", ""),
            reddit_client_secret=env("REDDIT_CLIENT_SECRET", ""),
            reddit_url=env("REDDIT_URL", "https://www.reddit.com"),
            reddit_oauth_url=env("REDDIT_OAUTH_URL", "https://oauth.reddit.com"),
            arctic_shift_url=env("ARCTIC_SHIFT_URL", "https://arctic-shift.photon-reddit.com"),
            contact=env("CONTACT", ""),
            sandbox_port=_port("CORPUS_SANDBOX_PORT"),
            mlflow_tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
            answers_url=env("ANSWERS_URL", f"sqlite:///{home}/answers.sqlite"),
            journal_url=env("JOURNAL_URL", f"sqlite:///{home}/journal.sqlite"),
            label_studio=Path(env("LABEL_STUDIO", f"{home}/label_studio")),
            label_studio_env=Path(env("LABEL_STUDIO_ENV", ".label-studio")).resolve(),
            label_studio_port=_port("CORPUS_LABEL_STUDIO_PORT"),
            label_studio_url=os.environ.get("CORPUS_LABEL_STUDIO_URL") or None,
            label_studio_key=SecretStr(env("LABEL_STUDIO_KEY", "")),
            argilla_url=env("ARGILLA_URL", "http://127.0.0.1:6900"),
            argilla_key=SecretStr(env("ARGILLA_KEY", "")),
            argilla_workspace=env("ARGILLA_WORKSPACE", "argilla"),
            annotation_files=Path(env("ANNOTATION_FILES", f"{home}/annotation")),
        )

    def endpoint(self, provider: str) -> Endpoint:
        """Return address and key of a provider: ``CORPUS_<PROVIDER>_URL`` (none: the provider's own), ``_KEY``."""
        name = f"CORPUS_{provider.upper().replace('-', '_')}"
        return Endpoint(url=os.environ.get(f"{name}_URL") or None, key=SecretStr(os.environ.get(f"{name}_KEY", "")))

    def secret(self) -> bytes:
        """Return the project secret: ``CORPUS_SECRET`` (hex), else ``<home>/secret``, made on first use with mode 600.

        Raises:
            BadParams: the secret is shorter than 32 bytes or not hexadecimal.
        """
        text = os.environ.get("CORPUS_SECRET") or self._own_secret()
        try:
            secret = bytes.fromhex(text.strip())
        except ValueError:
            secret = b""
        if len(secret) < 32:
            raise BadParams(where="CORPUS_SECRET", detail="needs at least 64 hexadecimal digits")
        return secret

    def _own_secret(self) -> str:
        """Read ``<home>/secret``; the first process makes it whole under another name and links it into place."""
        path = self.home / "secret"
        if not path.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            made = path.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
            made.touch(mode=0o600)
            made.write_text(secrets.token_hex(64))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)
            made.unlink()
        return path.read_text()
