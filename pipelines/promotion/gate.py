"""What a version must pass before a person is asked whether it may become champion.

Every check is made and every failed one is named with its numbers; nothing stops at the first. The checks:

- ``withdrawn``: the version was not taken back.
- ``files``, ``pickle``, ``card``: :func:`pipelines.registry.contents.faults`. Files that are not what was registered,
  or hold a pickle, are not loaded: then ``asked`` says that nothing could be scored.
- ``taken_down``: no record that it learnt from was taken down.
- ``split``: none of the records that candidate or champion learnt from, or were chosen by, stands in the test on which
  both are scored now. Split digests are compared and put on record; that they differ is no fault by itself, for the
  split's digest changes when the corpus grows and when somebody's post is deleted, but no item ever changes its split.
- ``labels``: it answers with the task's labels.
- ``champion``: the champion can be compared with: unaltered, and it loads.
- ``better``, ``recall``: :mod:`pipelines.promotion.scores`. Without a champion the majority set is to be beaten.

The verdict is a row of the journal. What was scored once is not scored again while candidate, champion, test and terms
are the same: whoever approves has seen the numbers by which the alias moves.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipelines.config.registry import Promote
from pipelines.errors import ConfigError
from pipelines.evaluate.benchmark import Json, Run
from pipelines.promotion import holdout, scores
from pipelines.promotion.holdout import CannotBeAsked, Frozen
from pipelines.registry.candidate import Context, Entry, enter, scratch
from pipelines.registry.journal import Journal, Row, canonical
from pipelines.registry.state import Standing, standing
from pipelines.registry.versions import CHALLENGER, AliasAstray, Registry, subject
from pipelines.vault.vault import Vault

WHO = "corpus gate"
JUDGED = ("gated", "refused")


class ChampionAlready(ConfigError):
    """A champion has nobody to be compared with but itself."""

    message = "Version {version} of '{name}' is champion already."
    remedy = "Name another version; `corpus registry {name}` lists them."


@dataclass(frozen=True)
class Verdict:
    """What the gate found.

    Args:
        name: the registered model.
        version: the candidate.
        champion: whom it was compared with, ``None``: the majority set.
        reasons: of every failed check, ``check: what``; none: it passed.
        figures: numbers, names of labels and digests.
        basis: a digest of what the scores follow from.
        files: the digest of the candidate's files as they were found.
    """

    name: str
    version: int
    champion: int | None
    reasons: tuple[str, ...]
    figures: Json
    basis: str
    files: str

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    @property
    def metrics(self) -> Json:
        """What the journal keeps of it."""
        return {"reasons": list(self.reasons), "figures": self.figures, "basis": self.basis}


@dataclass
class _Case:
    """What is being found out about a candidate."""

    test: Frozen
    entries: dict[int, Entry]
    champion: int | None
    reasons: dict[str, list[str]] = field(default_factory=dict)
    figures: Json = field(default_factory=dict)


def run(name: str, version: int, *, context: Context, who: str = WHO) -> Verdict:
    """Judge a version, write the verdict into the journal, and make it challenger if it passed.

    Repeating it writes nothing as long as the verdict is the same.

    Raises:
        UnknownModel: no model has this name.
        UnknownVersion: the model has no such version.
        ChampionAlready: it is the champion.
        JournalBroken: the journal was altered.
        CorpusError: the test cannot be opened.
    """
    verdict = judge(name, version, context=context)
    event = JUDGED[0] if verdict.passed else JUDGED[1]
    last = _judged(context.journal, name=name, version=version)
    if last is None or (last.event, dict(last.metrics)) != (event, verdict.metrics):
        why = "every check passed" if verdict.passed else f"{len(verdict.reasons)} reasons against it"
        context.journal.append(
            name,
            event=event,  # type: ignore[arg-type]
            who=who,
            why=why,
            from_version=verdict.champion,
            to_version=version,
            metrics=verdict.metrics,
            files=verdict.files,
        )
    if verdict.passed:
        # whoever is judged at the same time may be the newer one
        with suppress(AliasAstray):
            context.registry.point(name, CHALLENGER, version)
    else:
        dismiss(name, version, registry=context.registry)
    return verdict


def dismiss(name: str, version: int, *, registry: Registry) -> None:
    """Take the alias ``challenger`` from a version that has it."""
    if registry.alias(name, CHALLENGER) == version:
        registry.point(name, CHALLENGER, None)


def judge(name: str, version: int, *, context: Context) -> Verdict:
    """Judge a version and write nothing; see :func:`run`."""
    corpus, category = subject(name, params=context.params)
    now = standing(context.journal, name)
    candidate = context.registry.version(name, version)
    if now.champion == version:
        raise ChampionAlready(name=name, version=version)
    test = holdout.open_test(corpus, category=category, params=context.params, vault=context.vault, root=context.root)
    with scratch(context.settings) as folder:
        versions = [candidate, *([context.registry.version(name, now.champion)] if now.champion else [])]
        entries = {v.version: enter(v, context=context, folder=folder) for v in versions}
        case = _Case(test, entries, now.champion)
        _look(case, entries[version], standing=now, context=context)
        basis = _basis(case, terms=context.terms)
        _score(case, version, basis=basis, context=context)
    reasons = tuple(f"{check}: {reason}" for check, found in case.reasons.items() for reason in found)
    return Verdict(name, version, now.champion, reasons, case.figures, basis, entries[version].found)


def _look(case: _Case, entry: Entry, *, standing: Standing, context: Context) -> None:
    """Make every check that asks the model nothing."""
    version = entry.version.version
    gone = [f"version {version} was withdrawn"] if version in standing.withdrawn else []
    case.reasons["withdrawn"] = gone
    case.reasons.update(entry.faults)
    case.figures["test"] = {
        "digest": case.test.digest,
        "split": case.test.split,
        "n": len(case.test.board.items),
        "taken_down": case.test.taken_down,
    }
    case.reasons |= {"taken_down": [], "split": [], "labels": []}
    for other in case.entries.values():
        _learnt(case, other, candidate=other is entry, vault=context.vault)
    if entry.pack is None:
        case.reasons["taken_down"].append("nothing says whose records it has learnt from")
    elif entry.pack.manifest.labels != case.test.task.labels:
        found, wanted = len(entry.pack.manifest.labels), len(case.test.task.labels)
        case.reasons["labels"].append(f"its {found} labels are not the {wanted} of '{case.test.task.key}'")


def _learnt(case: _Case, entry: Entry, *, candidate: bool, vault: Vault) -> None:
    """Check whose records a model has learnt from; the champion's takedowns are not the candidate's fault."""
    if entry.pack is None:
        return
    records, role = entry.pack.records, "candidate" if candidate else "champion"
    gone, inside = entry.taken_down(vault), len(records & case.test.record_ids)
    case.figures[role] = {
        "version": entry.version.version,
        "files": entry.found,
        "data_commit": entry.pack.manifest.data_commit,
        "split": entry.pack.manifest.split_digest,
        "records": len(records),
        "taken_down": gone,
        "in_test": inside,
    }
    if gone and candidate:
        case.reasons["taken_down"].append(
            f"{gone} of the {len(records)} records that it has learnt from are taken down"
        )
    if inside:
        case.reasons["split"].append(
            f"the {role} (version {entry.version.version}) has learnt from {inside} of the records of the test"
        )


def _basis(case: _Case, *, terms: Promote) -> str:
    """Return a digest of all that scores follow from."""
    files = {str(version): entry.found for version, entry in case.entries.items()}
    sampling = case.test.board.sampling
    values = {
        "files": files,
        "champion": case.champion,
        "test": case.test.digest,
        "terms": terms.model_dump(mode="json"),
        "sampling": [sampling.resamples, sampling.seed],
    }
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def _score(case: _Case, version: int, *, basis: str, context: Context) -> None:
    """Ask both and compare, or take what was found when they were asked before."""
    name = case.entries[version].version.name
    known = _known(context.journal, name=name, version=version, basis=basis)
    if known is not None:
        case.figures["scores"] = known
    else:
        runs = _asked(case, version)
        if runs is None:
            return
        floors = context.terms.recall_floors.get(name, {})
        found = scores.compare(
            case.test,
            candidate=runs[0],
            other=runs[1],
            champion=case.champion,
            floors=floors,
            terms=context.terms,
        )
        case.figures["scores"] = found.figures | {"reasons": dict(found.reasons)}
    case.reasons |= {check: list(reasons) for check, reasons in case.figures["scores"]["reasons"].items()}


def _asked(case: _Case, version: int) -> tuple[Run, Run] | None:
    """Return what candidate and champion say; ``None`` where one cannot be asked, which is a reason."""
    if not case.test.board.items:
        case.reasons["asked"] = ["the test has no item with gold, so nothing was scored"]
        return None
    said: dict[int, Run] = {}
    for number, entry in case.entries.items():
        check = "asked" if number == version else "champion"
        try:
            if not entry.sound:
                raise CannotBeAsked(detail="its files are not to be trusted, so it was not loaded")
            said[number] = holdout.ask(entry.folder, frozen=case.test)
        except CannotBeAsked as error:
            remedy = "" if check == "asked" else "; withdraw it, or restore its files"
            case.reasons[check] = [f"version {number} was not scored: {error.fields['detail']}{remedy}"]
    if len(said) < len(case.entries):
        return None
    other = case.test.constant() if case.champion is None else said[case.champion]
    return said[version], other


def _judged(journal: Journal, *, name: str, version: int) -> Row | None:
    """Return the gate's last verdict on a version."""
    rows = [r for r in journal.rows(name) if r.to_version == version and "basis" in r.metrics and r.event in JUDGED]
    return rows[-1] if rows else None


def _known(journal: Journal, *, name: str, version: int, basis: str) -> Any | None:
    """Return the scores of the gate's last verdict, if they follow from the same."""
    last = _judged(journal, name=name, version=version)
    if last is None or last.metrics["basis"] != basis:
        return None
    return last.metrics["figures"].get("scores")
