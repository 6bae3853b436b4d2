"""Read all parameters, ``params.yaml`` overridden by a profile, and change them in their files.

Steps receive the parameters as frozen pydantic models. A changed file keeps its comments, order and quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from pipelines.core.config.added_corpora import complete
from pipelines.core.config.base import CORPORA, Distribution, faults, nested
from pipelines.core.config.collect import CollectSections
from pipelines.core.config.label import LabelSections, RemoteLabeller
from pipelines.core.config.models import ModelSections
from pipelines.core.config.operate import OperateSections
from pipelines.core.errors import BadParams, ConfigError

# The files of the parameters, in a checkout and on the corpus branch, and the sections of the second.
FILES = ("params.yaml", "catalogue.yaml")
CATALOGUE = ("providers", "labellers", "ensembles", "moderators", "models")
# Ours: what DVC takes as one key of `models.<name>`, and every file system as the name of a folder.
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# Other names that dvc.yaml fills into command lines: one argument, and no option.
ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# The folder of metrics that DVC shows for all corpora, so no corpus can have this name.
ALL_CORPORA = "all-corpora"


class Params(OperateSections, ModelSections, LabelSections, CollectSections):
    """All sections of ``params.yaml``; ``profile`` names the profile with which the corpus repository was created.

    Sections that stages declare themselves (:class:`pipelines.store.stage.Stage`) are checked by :data:`checks`.

    ``distributions`` has what other distributions may add parts (:mod:`pipelines.core.parts`).
    """

    model_config = ConfigDict(extra="allow")

    profile: str | None
    distributions: dict[str, Distribution] = Field(default_factory=dict)

    @property
    def used_models(self) -> tuple[str, ...]:
        """The names of the models that are fitted or compared on any corpus."""
        fitted = [name for rows in self.train.rows.values() for name in rows.models]
        return tuple(dict.fromkeys([*fitted, *(name for names in self.predict.rows.values() for name in names)]))

    def ensemble(self, corpus: str) -> str | None:
        """Return the ensemble whose silver the models of a corpus learn from, if they learn from any."""
        rows = self.train.rows.get(corpus)
        return rows.ensemble if rows else None

    def fitted(self, corpus: str) -> tuple[str, ...]:
        """Return the models that are fitted on a corpus."""
        rows = self.train.rows.get(corpus)
        return rows.models if rows else ()

    @model_validator(mode="after")
    def _known_names(self) -> Params:
        """Refuse a reference to a labeller, a provider, an ensemble or a corpus that is not described."""
        members = {name for ensemble in self.ensembles.values() for name in ensemble.members}
        remote = [labeller for labeller in self.labellers.values() if isinstance(labeller, RemoteLabeller)]
        candidates = {chosen.model for entry in self.registry.values() for chosen in entry.candidates}
        learnt = {rows.ensemble for rows in self.train.rows.values() if rows.ensemble is not None}
        asked: dict[str, tuple[set[str], Mapping[str, object]]] = {
            "labellers": ({n for names in self.votes.labellers.values() for n in names} | members, self.labellers),
            "providers": (
                {entry.provider for entry in remote} | {entry.provider for entry in self.moderators.values()},
                self.providers,
            ),
            "moderators": ({n for names in self.moderation.systems.values() for n in names}, self.moderators),
            "ensembles": ({n for names in self.silver.ensembles.values() for n in names} | learnt, self.ensembles),
            "sources": ({name for corpus in self.corpora.values() for name in corpus.sources}, self.sources),
            "models": (
                {*self.used_models, *candidates},
                self.models,
            ),
            "corpora": (
                {
                    *self.sample,
                    *self.split,
                    *self.gold,
                    *self.round.protocol,
                    *self.moderation.systems,
                    *self.few_shot.examples,
                    *self.votes.labellers,
                    *self.silver.ensembles,
                    *self.train.rows,
                    *self.predict.rows,
                    *self.evaluate.queues,
                    *self.evaluate.joint,
                    *(entry.corpus for entry in self.registry.values()),
                },
                self.corpora,
            ),
            "registry": ({name for names in self.batch_predict.values() for name in names}, self.registry),
        }
        for section, (names, known) in asked.items():
            if missing := sorted(names - set(known)):
                near = get_close_matches(missing[0], known, n=1)
                more = f" (nearest: {near[0]})" if near else ""
                raise ValueError(
                    f"section {section} has no entry {', '.join(missing)}, which another section names{more}"
                )
        for corpus, rows in self.train.rows.items():
            if len(set(rows.seeds)) < len(rows.seeds):
                raise ValueError(f"train.rows.{corpus}.seeds has a seed twice")
        for name, ensemble in self.ensembles.items():
            if ensemble.fallback is not None and ensemble.fallback not in ensemble.members:
                raise ValueError(f"ensembles.{name}.fallback is not one of the ensemble's members")
        return self

    @model_validator(mode="after")
    def _arguments(self) -> Params:
        """Refuse a name that would be more than one argument of a stage's command, or an option."""
        names = {*self.corpora, *self.labellers, *self.ensembles, *self.moderators}
        if wrong := ", ".join(repr(name) for name in sorted(names) if not ARGUMENT.fullmatch(name)):
            raise ValueError(f"{wrong} cannot be a name: it has other characters than letters, digits, _, - and .")
        if ALL_CORPORA in self.corpora:
            raise ValueError(f"{ALL_CORPORA} cannot be the name of a corpus: metrics/{ALL_CORPORA} is what DVC shows")
        return self

    @model_validator(mode="after")
    def _stages(self) -> Params:
        """Refuse a corpus that the stages do not have, and votes that none of them reads."""
        for corpus, labellers in self.votes.labellers.items():
            if labellers and not self.silver.ensembles.get(corpus):
                raise ValueError(f"votes.labellers.{corpus} needs an ensemble in silver.ensembles.{corpus}")
        if set(self.matrix.corpora) != set(self.corpora):
            raise ValueError(f"matrix.corpora must list {', '.join(sorted(self.corpora)) or 'no corpus'}")
        return self

    @model_validator(mode="after")
    def _models(self) -> Params:
        """Refuse a model that asks a labeller that is not described, or whose name DVC would not find."""
        named = (*self.models, *self.registry)
        if wrong := ", ".join(repr(name) for name in named if not MODEL_NAME.fullmatch(name)):
            raise ValueError(
                f"models, registry: {wrong} cannot be a model's name, which must begin with a lower-case letter or "
                "digit and go on with these, - and _, at most 64 in all (DVC reads a dot as a separator of keys)"
            )
        for name, model in self.models.items():
            asked = (model.labeller, model.rationales, model.votes)
            if missing := [labeller for labeller in asked if labeller is not None and labeller not in self.labellers]:
                raise ValueError(f"models.{name} names '{missing[0]}', which section labellers does not have")
            if model.silver is not None and model.silver not in self.ensembles:
                raise ValueError(f"models.{name}.silver is '{model.silver}', which section ensembles does not have")
        return self


# Return what is wrong with entries that name parts (:mod:`pipelines.core.parts`), by key and without values. Here only
# the shape of the parameters is known: the layer that imports the parts, such as the commands, adds a check.
checks: set[Callable[[Params], Sequence[str]]] = set()


def overlay(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge ``over`` into ``base`` and return ``base``: mappings are merged recursively, other values replaced."""
    for key, value in over.items():
        below = base.get(key)
        base[key] = overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return base


def section_names(texts: Mapping[str, str], section: str) -> list[str]:
    """Return the names that a section in the texts of :data:`FILES` defines, unvalidated; empty if unreadable."""
    try:
        return list(parse_all(texts).get(section) or ())
    except (BadParams, TypeError):
        return []


def by_file(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections that belong into each of :data:`FILES`."""
    catalogue = {name: section for name, section in values.items() if name in CATALOGUE}
    return dict(zip(FILES, ({k: v for k, v in values.items() if k not in CATALOGUE}, catalogue), strict=True))


def texts_below(root: Path) -> dict[str, str]:
    """Return the texts of :data:`FILES` in a folder by name."""
    return {name: (root / name).read_text() for name in FILES if name == FILES[0] or (root / name).is_file()}


def read_params(root: Path) -> dict[str, Any]:
    """Return the content of :data:`FILES` in a folder, without validation."""
    return parse_all(texts_below(root))


def parse_all(texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse the texts of :data:`FILES`, by name, into one mapping of sections; each section is in one of them."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        sections = parse(text, where=name)
        if repeated := ", ".join(sorted(values.keys() & sections.keys())):
            raise BadParams(where=name, detail=f"has section {repeated}, which another file has, too")
        values |= sections
    return values


def profile_places(name: str, *, root: Path = Path()) -> tuple[Path, Path]:
    """Return the paths at which a profile may be, the first that exists: in the folder of one corpus, or usually."""
    return root / CORPORA / name / "profile.yaml", root / "profiles" / f"{name}.yaml"


def profile_name(path: Path) -> str:
    """Return the name of the profile in a file."""
    return path.parent.name if path.match(f"{CORPORA}/*/profile.yaml") else path.stem


def known_profiles(root: Path) -> str:
    """Return the names of the profiles in a checkout, for an error."""
    paths = [path for place in profile_places("*") for path in root.glob(str(place))]
    return ", ".join(sorted(map(profile_name, paths))) or "none"


def load(root: Path = Path(), *, profile: str | None = None, parts: bool = True) -> Params:
    """Read :data:`FILES` below ``root``, overlaid by the file of a profile, with DVC's parser.

    Without ``parts`` only the shape is checked: a part that is missing or altered must not stop a deletion.
    """
    where = root / FILES[0]
    try:
        values = read_params(root)
        if profile:
            where, usual = profile_places(profile, root=root)
            where = where if where.is_file() else usual
            values = complete(overlay(values, parse(where.read_text(), where=where.name)))
    except FileNotFoundError:
        if profile and (root / FILES[0]).is_file():
            raise ConfigError("UnknownName", kind="profile", name=profile, known=known_profiles(root)) from None
        place = "the project's checkout or in a clone made by `corpus clone`"
        raise BadParams(where=where.name, detail=f"is not in this folder; run the command in {place}") from None
    except OSError as error:
        raise BadParams(where=where.name, detail=f"cannot be read ({type(error).__name__})") from None
    return validate(values, where=where.name, parts=parts)


def parse(text: str, *, where: str) -> dict[str, Any]:
    """Parse the text of one file of parameters or of a profile; ``where`` is the file's name for error messages."""
    try:
        values = YAML(typ="safe").load(text) or {}
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        detail = f"is not YAML ({type(error).__name__}); within braces a value with a colon needs quotes"
        raise BadParams(where=f"{where}{line}", detail=detail) from None
    except YAMLError as error:
        raise BadParams(where=where, detail=f"cannot be read ({type(error).__name__})") from None
    if not isinstance(values, dict):
        raise BadParams(where=where, detail="is not a mapping of sections")
    return values


def validate(values: Mapping[str, Any], *, where: str, parts: bool = True) -> Params:
    """Validate the content of ``params.yaml``, and return it as frozen pydantic models."""
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        raise BadParams(where=where, detail=faults(error)) from None
    if found := [fault for check in checks for fault in check(params)] if parts else []:
        raise BadParams(where=where, detail="; ".join(found))
    return params


Key = tuple[str, ...]
"""The names from a section of ``params.yaml`` down to a value."""


def dotted(key: Key) -> str:
    """Return a parameter's key in dotted form, such as ``sample.memes.size``."""
    return ".".join(key)


def find_key(values: Mapping[str, Any], name: str) -> Key:
    """Return the parameter key with this dotted name; names may contain dots themselves (``labellers.gpt-5.1``)."""
    key: list[str] = []
    rest: Any = values
    parts = name.split(".")
    while parts:
        taken = 1
        if isinstance(rest, Mapping):
            taken = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in rest), 1)
        part, parts = ".".join(parts[:taken]), parts[taken:]
        key.append(part)
        rest = rest.get(part) if isinstance(rest, Mapping) else None
    return tuple(key)


def leaves(values: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every parameter value with its key; an empty mapping or a list counts as one value."""
    if isinstance(values, Mapping) and values:
        for name, below in values.items():
            yield from leaves(below, (*key, name))
    else:
        yield key, values


def put(values: dict[str, Any], key: Key, value: Any) -> None:
    """Set one parameter value in ``values``, and create the mappings on its path if they are missing."""
    for name in key[:-1]:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[key[-1]] = undated(value)


def undated(value: Any) -> Any:
    """Return a parameter value with its dates converted to text, because DVC's parameters have no dates."""
    return nested(value, lambda inner: inner.isoformat() if isinstance(inner, date) else inner)


def rewrite(texts: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the parameters' files with their values replaced by ``values`` and their comments kept."""
    return {name: _rewritten(texts.get(name, ""), sections) for name, sections in by_file(values).items()}


def _rewritten(text: str, values: Mapping[str, Any]) -> str:
    # libyaml, with which DVC reads, needs the quotes around a colon within braces
    yaml = YAML()
    yaml.width, yaml.preserve_quotes = 200, True
    document = yaml.load(text) or CommentedMap()
    _assign(document, values)
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _assign(document: Any, values: Mapping[str, Any]) -> None:
    for name in [name for name in document if name not in values]:
        del document[name]
    for name, value in values.items():
        below = document.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and value:
            _assign(below, value)
        elif name not in document or below != value or isinstance(value, bool) != isinstance(below, bool):
            document[name] = nested(value, _quoted)


def _quoted(value: Any) -> Any:
    return DoubleQuotedScalarString(value) if isinstance(value, str) and ":" in value else value
