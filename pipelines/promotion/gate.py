"""Judge whether a version may become champion, before a person approves it.

All checks are made, and each failed check is reported with its numbers:

- ``withdrawn``: the version was not withdrawn.
- ``files``, ``pickle``, ``card``: :func:`crisis_corpus.integrity.faults`. Files that differ from the registered
  ones, or contain a pickle, are not loaded.
- ``stale``, ``taken_down``: no record that the version learnt from was taken down, by the journal and by its list.
- ``split``: no record that candidate or champion learnt from, or was selected on, is in the test on which both are
  scored now. Split digests are recorded; a difference alone is not a fault, because the split's digest changes when the
  corpus grows and when a post is deleted, but no item ever changes its split.
- ``labels``: the version's labels are the task's labels.
- ``asked``, ``champion``: the test has items with gold, and both the version (``asked``) and the champion could be run
  on them.
- ``better``, ``recall``: :mod:`pipelines.promotion.scores`. Without a champion, the version must beat the prediction of
  the most frequent label set for every item.

The verdict is written to the journal. Scores are reused while candidate, champion, test and terms are the same, so the
approver sees exactly the numbers on which a promotion is based.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from crisis_corpus.journal import JournalRow, canonical
from crisis_corpus.state import Standing, standing
from pipelines.config.models import Promote
from pipelines.errors import ConfigError
from pipelines.evaluate.model_scores import Json, Run
from pipelines.promotion import holdout, scores
from pipelines.promotion.holdout import CannotBeAsked, Frozen
from pipelines.registry.candidate import Candidate, Context, enter, scratch
from pipelines.registry.journal import Journal
from pipelines.registry.versions import CHALLENGER, AliasAstray, Registry, subject
from pipelines.vault.vault import Vault

WHO = "corpus gate"
JUDGED = ("gated", "refused")


class ChampionAlready(ConfigError):
    """The version to evaluate is the champion, so that there is no other version for a comparison."""

    message = "Version {version} of '{name}' is already champion."
    remedy = "Choose another version; list them with `corpus registry {name}`."


@dataclass(frozen=True)
class GateVerdict:
    """The result of the promotion gate for one version.

    Args:
        name: the registered model.
        version: the candidate.
        champion: the version that the candidate was compared with; if ``None``, always predicting the most frequent
            label set.
        reasons: a line ``check: reason`` for every failed check; empty if the version passed.
        figures: the scores and counts of the comparison, by name.
        basis: a digest of everything that determines the scores.
        files: the digest of the candidate's files as downloaded.
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
        """Whether every check passed."""
        return not self.reasons

    @property
    def metrics(self) -> Json:
        """The part of the verdict that is stored in the journal."""
        return {"reasons": list(self.reasons), "figures": self.figures, "basis": self.basis}


@dataclass
class _GateCase:
    """The state of judging a candidate."""

    test: Frozen
    entries: dict[int, Candidate]
    champion: int | None
    reasons: dict[str, list[str]] = field(default_factory=dict)
    figures: Json = field(default_factory=dict)


def run(name: str, version: int, *, context: Context, who: str = WHO, compare: bool = True) -> GateVerdict:
    """Evaluate a version, record the verdict in the journal, and set the alias ``challenger`` if it passed.

    Repeating this writes nothing while the verdict is the same. Without ``compare``, the version must beat the most
    frequent label set, not the champion: the champion's weights are about to be deleted.

    Raises:
        UnknownModel: no model has this name.
        UnknownVersion: the model has no such version.
        ChampionAlready: the version is the champion.
        JournalBroken: the journal was altered.
        CorpusError: the test split cannot be read.
    """
    verdict = judge(name, version, context=context, compare=compare)
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
        # a version that is judged at the same time may have become challenger
        with suppress(AliasAstray):
            context.registry.point(name, CHALLENGER, version)
    else:
        dismiss(name, version, registry=context.registry)
    return verdict


def dismiss(name: str, version: int, *, registry: Registry) -> None:
    """Remove the alias ``challenger`` if it points to this version."""
    if registry.alias(name, CHALLENGER) == version:
        registry.point(name, CHALLENGER, None)


def judge(name: str, version: int, *, context: Context, compare: bool = True) -> GateVerdict:
    """Evaluate a version without writing anything; see :func:`run`."""
    corpus, category = subject(name, params=context.params)
    now = standing(context.journal, name)
    candidate = context.registry.version(name, version)
    if now.champion == version:
        raise ChampionAlready(name=name, version=version)
    test = holdout.open_test(corpus, category=category, params=context.params, vault=context.vault, root=context.root)
    with scratch(context.settings) as folder:
        champion = now.champion if compare else None
        versions = [candidate, *([context.registry.version(name, champion)] if champion else [])]
        entries = {v.version: enter(v, context=context, folder=folder) for v in versions}
        case = _GateCase(test, entries, champion)
        _look(case, entries[version], standing=now, context=context)
        basis = _basis(case, terms=context.terms)
        _score(case, version, basis=basis, context=context)
    reasons = tuple(f"{check}: {reason}" for check, found in case.reasons.items() for reason in found)
    return GateVerdict(name, version, champion, reasons, case.figures, basis, entries[version].found)


def _look(case: _GateCase, entry: Candidate, *, standing: Standing, context: Context) -> None:
    """Make every check that does not run the model."""
    version = entry.version.version
    gone = [f"version {version} was withdrawn"] if version in standing.withdrawn else []
    until = standing.stale.get(version)
    case.reasons = {
        "withdrawn": gone,
        "stale": [f"version {version} learnt from records that were taken down, and is removed on {until[:10]}"]
        if until
        else [],
    }
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
        case.reasons["taken_down"].append("the records that it has learnt from are unknown")
    elif entry.pack.manifest.labels != case.test.task.labels:
        found, wanted = len(entry.pack.manifest.labels), len(case.test.task.labels)
        case.reasons["labels"].append(f"its {found} labels are not the {wanted} of '{case.test.task.key}'")


def _learnt(case: _GateCase, entry: Candidate, *, candidate: bool, vault: Vault) -> None:
    """Check the records that a model has learnt from; takedowns count only against the candidate."""
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
            f"{gone} of the {len(records)} records that it has learnt from were taken down"
        )
    if inside:
        case.reasons["split"].append(
            f"the {role} (version {entry.version.version}) has learnt from {inside} records of the test"
        )


def _basis(case: _GateCase, *, terms: Promote) -> str:
    """Return a digest of everything that determines the scores."""
    files = {str(version): entry.found for version, entry in case.entries.items()}
    sampling = case.test.board.sampling
    values = {
        "files": files,
        "champion": case.champion,
        "test": case.test.digest,
        "terms": terms.model_dump(mode="json"),
        "sampling": [sampling.resamples, sampling.seed],
        # verdicts without them are of earlier versions and are not reused
        "counts": 1,
    }
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def _score(case: _GateCase, version: int, *, basis: str, context: Context) -> None:
    """Run and compare both models, or reuse their earlier scores."""
    name = case.entries[version].version.name
    known = _known(context.journal, name=name, version=version, basis=basis)
    if known is not None:
        case.figures["scores"] = known
    else:
        said = _asked(case, version)
        if said is None:
            return
        floors = context.terms.recall_floors.get(name, {})
        found = scores.compare(
            case.test,
            candidate=said[version],
            other=case.test.constant() if case.champion is None else said[case.champion],
            champion=case.champion,
            floors=floors,
            terms=context.terms,
        )
        severe = context.terms.severe
        counts = {
            str(v): holdout.counts(run, frozen=case.test, severe=severe).model_dump(mode="json")
            for v, run in said.items()
        }
        case.figures["scores"] = found.figures | {"reasons": dict(found.reasons), "counts": counts}
    case.reasons |= {check: list(reasons) for check, reasons in case.figures["scores"]["reasons"].items()}


def _asked(case: _GateCase, version: int) -> dict[int, Run] | None:
    """Return the answers of candidate and champion; add a reason and return ``None`` if one cannot be run."""
    if not case.test.board.items:
        case.reasons["asked"] = ["the test has no item with gold, so nothing was scored"]
        return None
    said: dict[int, Run] = {}
    for number, entry in case.entries.items():
        check = "asked" if number == version else "champion"
        try:
            if not entry.sound:
                raise CannotBeAsked(detail="its files failed verification, so it was not loaded")
            said[number] = holdout.ask(entry.folder, frozen=case.test)
        except CannotBeAsked as error:
            remedy = "" if check == "asked" else "; withdraw it, or restore its files"
            case.reasons[check] = [f"version {number} was not scored: {error.fields['detail']}{remedy}"]
    return said if len(said) == len(case.entries) else None


def _judged(journal: Journal, *, name: str, version: int) -> JournalRow | None:
    """Return the gate's last verdict on a version."""
    rows = [r for r in journal.rows(name) if r.to_version == version and "basis" in r.metrics and r.event in JUDGED]
    return rows[-1] if rows else None


def _known(journal: Journal, *, name: str, version: int, basis: str) -> Any | None:
    """Return the scores of the gate's last verdict if its basis is the same."""
    last = _judged(journal, name=name, version=version)
    if last is None or last.metrics["basis"] != basis:
        return None
    return last.metrics["figures"].get("scores")
