"""Check that the parts which the parameters name exist and accept their entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from pipelines.cli.stages import STAGES
from pipelines.core.config.base import fitted
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.parts import Parts, verify


def registries() -> Mapping[str, Parts[Any]]:
    """Return the registry of the parts that each section of the parameters names."""
    # only a command that checks parts imports them
    from pipelines.evaluate.moderation.moderator import MODERATORS
    from pipelines.llm.vendor import VENDORS
    from pipelines.models.kind import KINDS

    return {"providers": VENDORS, "moderators": MODERATORS, "models": KINDS}


def named() -> Mapping[str, Parts[Any]]:
    """Return the registry of the parts whose names are the keys of a section, with the parts' own parameters below."""
    from pipelines.annotate.backends import BACKENDS
    from pipelines.collect.read.engine import ENGINES
    from pipelines.collect.sources import SOURCES

    return {"sources": SOURCES, "images.ocr.engines": ENGINES, "round.backends": BACKENDS}


def _named(params: Params) -> Iterator[str]:
    """Yield what is wrong with the entries of sources, and of the OCR engine and the backend in use."""
    from pipelines.collect.sources import Listed

    ocr, round_ = params.images.ocr, params.round
    used: dict[str, Mapping[str, Any]] = {
        "sources": params.sources,
        "images.ocr.engines": {ocr.engine: ocr.engines.get(ocr.engine, {})},
        "round.backends": {round_.backend: round_.backends.get(round_.backend, {})},
    }
    for section, parts in named().items():
        for name, entry in used[section].items():
            key = f"{section}.{name}"
            try:
                part = parts.get(name, params.distributions)
                fitted(part.Parameters, entry, key=key)
                if section == "sources" and issubclass(part, Listed) != bool(params.sources[name].listing):
                    yield f"{key}.listing: only a source with listings has it"
            except BadParams as error:
                yield error.fields["detail"]
            except ConfigError as error:
                yield f"{key}: {error}"


def _sections(params: Params) -> Iterator[str]:
    """Yield what is wrong with the sections that stages declare themselves."""
    for name, values in (params.model_extra or {}).items():
        stage = getattr(import_module(STAGES[name]), "STAGE", None) if name in STAGES else None
        if stage is None or stage.parameters is None:
            yield f"{name}: is no section"
            continue
        try:
            fitted(stage.parameters, values, key=name)
        except BadParams as error:
            yield error.fields["detail"]


def check_parts(params: Params) -> list[str]:
    """Return what is wrong with the entries that name parts, by key and without values."""
    verify(params.distributions)
    faults, found = [*_named(params), *_sections(params)], dict[str, dict[str, Any]]()
    for section, parts in registries().items():
        found[section] = {}
        for name, entry in getattr(params, section).items():
            try:
                found[section][name] = parts.of(entry, params.distributions, where=f"{section}.{name}")
            except BadParams as error:
                faults.append(error.fields["detail"])
    providers = found["providers"], found["moderators"]
    return faults or [*_sources(params), *_providers(params, *providers), *_rows(params, found["models"])]


def _rows(params: Params, kinds: Mapping[str, Any]) -> Iterator[str]:
    """Yield the models that a corpus lists for what their kind cannot do, which the stage would refuse hours later."""
    from pipelines.datasets.items import CONTENTS

    for corpus, rows in params.train.rows.items():
        inputs = CONTENTS[params.corpora[corpus].content].inputs
        for name in rows.models:
            if not kinds[name].fitted:
                other = f"predict.rows.{corpus} lists such models"
                yield f"train.rows.{corpus}.models: {name} is of kind {kinds[name].kind}, which is not fitted; {other}"
            elif missing := ", ".join(sorted({*kinds[name].inputs} - {*inputs})):
                yield f"train.rows.{corpus}.models: {name} reads what the items do not have: {missing}"
    for corpus, names in params.predict.rows.items():
        for name in (name for name in names if kinds[name].fitted):
            yield f"predict.rows.{corpus}: {name} is of kind {kinds[name].kind}, which train.rows.{corpus}.models lists"


def _sources(params: Params) -> Iterator[str]:
    """Yield the sources of a corpus that have no past months, beside the one whose listings it reads."""
    from pipelines.collect.sources import Monthly, source_of

    for corpus, described in params.corpora.items():
        listed = params.listing(corpus)
        for name in described.sources:
            monthly = not params.sources[name].listing and issubclass(source_of(name, params), Monthly)
            if name != listed and not monthly:
                yield f"corpora.{corpus}.source: {name} cannot be read beside {listed}; choose a source of past months"


def _providers(params: Params, vendors: Mapping[str, Any], moderators: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labellers and moderators whose provider speaks another protocol."""
    for name, labeller in params.labellers.items():
        provider = getattr(labeller, "provider", None)
        if provider is not None and not vendors[provider].labels:
            yield f"labellers.{name}.provider: its api {vendors[provider].api} labels nothing"
    for name, moderator in moderators.items():
        if vendors[moderator.provider].api != moderator.api:
            yield f"moderators.{name}.provider: does not have api: {moderator.api}"
