"""Judge whether a model version (the candidate) may become champion, before a person approves it.

All checks are made, and each failed check is reported with its numbers:

- ``withdrawn``: the version was not withdrawn.
- ``files``, ``pickle``, ``card``: :func:`crisis_corpus.integrity.faults`. Files that differ from the registered
  ones, or contain a pickle, are not loaded.
- ``stale``, ``taken_down``: no record that the version learnt from was taken down, by the journal and by its list.
- ``split``: the candidate has not learnt from, and was not selected on, a record of a group of the test. Split digests
  are recorded; a difference alone is not a fault, because the split's digest changes when the corpus grows and when a
  post is deleted, but no item ever changes its split.
- ``labels``: the version's labels are the task's labels.
- ``asked``, ``champion``: the test has items with gold, and both the version (``asked``) and the champion could be run
  on them.
- ``looks``: the probability of a false promotion is not spent at this gate set (``looks.py``).
- ``better``: it is shown to be better (``superiority.py``) than the champion or, without one that can be compared, the
  best baseline (``holdout.py``).
- ``recall``: its recalls are not below their floors, nor below the champion's of severe labels (``scores.py``).

The last three compare the candidate on the gate set (a look), and are made only if no other check has failed. The
verdict is written to the journal. Scores are reused while candidate, rival, test and terms are the same, so the
approver sees exactly the numbers on which a promotion is based. The rest of the test is scored only for a version that
passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crisis_corpus.journal import standing
from pipelines.core.errors import ConfigError
from pipelines.core.templates import render
from pipelines.evaluate.model_scores import Json
from pipelines.registry import transitions
from pipelines.registry.candidate import Context, enter, scratch
from pipelines.registry.promotion import holdout
from pipelines.registry.promotion.comparison import JUDGED, GateCase, last_verdict
from pipelines.registry.promotion.looks import divide, gate_sets, require_part
from pipelines.registry.promotion.scores import undecided
from pipelines.registry.versions import CHALLENGER, AliasAstray, entry

WHO = "corpus gate"
TEMPLATE = Path(__file__).with_name("summary.md.jinja")


class ChampionAlready(ConfigError):
    """The model version to be judged is the champion already, so there is no other version to compare it with."""


@dataclass(frozen=True)
class GateVerdict:
    """The result of the promotion gate for one version.

    Args:
        reasons: a line ``check: reason`` for every failed check; empty if the version passed.
        basis: a digest of everything that determines the scores.
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
        return not self.reasons

    @property
    def metrics(self) -> Json:
        """The part of the verdict that is stored in the journal."""
        return {"reasons": list(self.reasons), "figures": self.figures, "basis": self.basis}


def run(name: str, version: int, *, context: Context, who: str = WHO, compare: bool = True) -> GateVerdict:
    """Judge a model version, record the verdict in the journal, and set the alias ``challenger`` if it passed.

    Repeating this writes nothing while the verdict is the same. Without ``compare``, the version must beat baselines
    that give every item the same labels, not the champion, whose weights are about to be deleted; this is not counted
    as a look (a use of the gate set).
    """
    verdict = judge(name, version, context=context, compare=compare, who=who)
    event = JUDGED[0] if verdict.passed else JUDGED[1]
    last = last_verdict(context.journal, name=name, version=version)
    if last is None or (last.event, dict(last.metrics)) != (event, verdict.metrics):
        count = len(verdict.reasons)
        why = "every check passed" if verdict.passed else f"{count} {'reason' if count == 1 else 'reasons'} against it"
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
        transitions.dismiss(name, version, registry=context.registry)
    return verdict


def judge(
    name: str, version: int, *, context: Context, compare: bool = True, look: bool = True, who: str = WHO
) -> GateVerdict:
    """Judge a model version without recording the verdict; see :func:`run`.

    Only the look (the use of the gate set for a comparison) is recorded. Without ``look``, nothing is recorded, and the
    version has scores only if an earlier verdict has them.
    """
    subject = entry(name, params=context.params)
    corpus = subject.corpus
    now, terms = standing(context.journal, name), context.terms
    candidate = context.registry.version(name, version)
    if compare:
        require_part(corpus, terms=terms)
    if now.champion == version:
        raise ChampionAlready(name=name, version=version)
    test = holdout.open_test(
        corpus, category=subject.task, params=context.params, vault=context.vault, root=context.root
    )
    used = gate_sets(context.journal.rows(name))
    divided = divide(test.board, corpus=corpus, version=context.params.split[corpus].version, terms=terms, used=used)
    with scratch(context.settings) as folder:
        champion = now.champion if compare else None
        versions = [candidate, *([context.registry.version(name, champion)] if champion else [])]
        entries = {v.version: enter(v, context=context, folder=folder) for v in versions}
        case = GateCase(corpus, version, champion, compare, context, test, divided, entries)
        case.check(now=now)
        case.score(look=look, who=who)
        # its files are read
        basis = case.basis
    reasons = tuple(f"{check}: {reason}" for check, against in case.reasons.items() for reason in against)
    return GateVerdict(name, version, champion, reasons, case.figures, basis, entries[version].found)


def summary(verdict: GateVerdict) -> str:
    """Return a verdict as Markdown: what it decides, the risks, scores beside the other's, recalls, the test."""
    scores = verdict.figures.get("scores", {})
    champion = f"champion, version {verdict.champion}" if verdict.champion else "best baseline (no version is champion)"
    return render(
        TEMPLATE,
        verdict=verdict,
        figures={"test": None, "candidate": None} | verdict.figures,
        scores=scores and {"reported": None} | scores,
        rival=scores.get("rival", {}).get("name") or champion,
        risks=list(_risks(verdict, scores)),
        undecided=list(undecided(scores)),
    ).rstrip("\n")


def _risks(verdict: GateVerdict, scores: Json) -> Iterator[str]:
    """Yield what a person who approves takes upon themselves, in a sentence or two each."""
    figures = verdict.figures
    if (learnt := figures.get("candidate")) and learnt["taken_down"]:
        yield (
            f"{learnt['taken_down']} records from which it has learnt were taken down. Its weights still contain what "
            "these records taught it, until it is replaced."
        )
    if (champion := figures.get("champion")) and (groups := champion["groups_in_test"]):
        consequence = (
            "they are left out for both. The comparison rests on fewer items than the whole test."
            if champion["compared"]
            else "too many for a comparison with it. It was compared with a baseline instead, and may be worse than "
            "the version in use."
        )
        yield f"The champion has learnt from {groups} groups of the test: {consequence}"
    if not verdict.champion:
        yield "No version is in use yet, so that nothing shows how its answers differ from today's."
    if (test := figures.get("test")) and not test["reported"] and "candidate" in scores.get("macro_f1", {}):
        yield "All items took part in the decision, so the scores of a version that passes are likely too high."
