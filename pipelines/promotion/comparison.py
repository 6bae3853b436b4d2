"""Compare a candidate with its rival by one use of the gate set (a look), or reuse an earlier verdict's figures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from crisis_corpus import integrity
from crisis_corpus.journal import JournalRow, canonical
from pipelines.datasets.posts import digest_of
from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import Json, Run
from pipelines.promotion import gate_set, holdout, looks, rivals, scores
from pipelines.promotion.case import GateCase
from pipelines.promotion.holdout import Answered, CannotBeAsked
from pipelines.promotion.looks import RecordedLook
from pipelines.promotion.rivals import Rival
from pipelines.promotion.superiority import Superiority, compared
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal

JUDGED = ("gated", "refused")
# Verdicts without it are of earlier versions of this package, and are not reused.
FORM = "looks, jackknife"


@dataclass(frozen=True)
class GateComparison:
    """The comparison of one candidate with its rival: the champion or, without one, the best baseline.

    ``compare``: whether the champion may be the rival, and the use of the gate set is counted (a look).
    """

    case: GateCase
    corpus: str
    compare: bool
    context: Context

    @property
    def name(self) -> str:
        """The name of the registered model."""
        return self.case.entry.version.name

    @cached_property
    def rival(self) -> Rival | None:
        """The best baseline if it is the rival; ``None`` if the champion is, or if there is no test item."""
        case, context = self.case, self.context
        if case.rival is not None or not case.divided.gate.items:
            return None
        models = context.terms.baselines if self.compare else ()
        if unknown := sorted(set(models) - (known := rivals.names(context.params))):
            detail = f"no predictions are named {', '.join(unknown)}, only {', '.join(sorted(known))}"
            raise BadParams(where="promote.baselines", detail=detail)
        board = case.divided.gate
        return rivals.baseline(board, frozen=case.test, corpus=self.corpus, models=models, root=context.root)

    @cached_property
    def basis(self) -> str:
        """A digest of everything that determines the scores, by which an earlier verdict is reused."""
        case, sampling = self.case, self.case.test.board.sampling
        values = {
            "files": {str(version): entry.found for version, entry in case.entries.items()},
            "champion": case.champion,
            "rival": self.rival.digest if self.rival else None,
            # without: another level and other rivals
            "compare": self.compare,
            "seeds": [rivals.answers_of(run) for run in self._seeds],
            "test": case.test.digest,
            "gate": case.divided.digest,
            "terms": self.context.terms.model_dump(mode="json"),
            "sampling": [sampling.resamples, sampling.seed],
            "form": FORM,
        }
        return hashlib.sha256(canonical(values).encode()).hexdigest()

    @cached_property
    def _guaranteed(self) -> dict[str, float]:
        """The recalls that the candidate's card guarantees for its alerts, by label."""
        pack = self.case.entry.pack
        path = pack.folder / integrity.CARD if pack else None
        if path is None or not path.is_file() or self.case.entry.faults["card"]:
            return {}
        told = json.loads(path.read_bytes()).get("alerts") or {}
        labels = self.case.test.task.labels
        found = {label: told[label].get("guaranteed_recall") for label in labels if label in told}
        return {label: float(recall) for label, recall in found.items() if recall}

    def score(self, *, look: bool, who: str) -> None:
        """Run and compare candidate and rival, or reuse earlier figures; add figures and reasons to ``self.case``.

        ``look``: whether to compare them if there are no earlier figures; the comparison is recorded with ``who``.
        """
        case, known = self.case, self._known()
        if known is None:
            floors = scores.floors_of(case.test.task, floors=self.context.terms.recall_floors.get(self.name, {}))
            for label, recall in self._guaranteed.items():
                floors[label] = max(recall, floors.get(label, 0.0))
            said = self._asked()
            if any(case.reasons.values()):
                return
            known = self._compared(said, floors=floors, look=look, who=who)
            if known is None:
                return
        case.figures["scores"] = known
        case.reasons |= {check: list(reasons) for check, reasons in known["reasons"].items()}

    def _asked(self) -> dict[int, Answered]:
        """Return the answers of candidate and champion; add a reason for one that cannot be run."""
        case = self.case
        if not case.divided.gate.items:
            case.reasons["asked"] = ["the gate set has no item with gold, so nothing was scored"]
            return {}
        said: dict[int, Answered] = {}
        for number in [case.version, *([case.rival] if case.rival else [])]:
            check, entry = "asked" if number == case.version else "champion", case.entries[number]
            try:
                if not entry.sound:
                    raise CannotBeAsked(detail="its files failed verification, so it was not loaded")
                said[number] = holdout.ask(entry.folder, frozen=case.test)
            except CannotBeAsked as error:
                remedy = "" if check == "asked" else "; withdraw it, or restore its files"
                case.reasons[check] = [f"version {number} was not scored: {error.fields['detail']}{remedy}"]
        return said

    def _compared(self, said: dict[int, Answered], *, floors: dict[str, float], look: bool, who: str) -> Json | None:
        case, terms = self.case, self.context.terms
        taken = self._look(look=look, who=who) if self.compare else None
        if self.compare and taken is None:
            return None
        board, rows = case.divided.gate, self.context.journal.rows(self.name)
        budget = looks.budget(rows, gate=case.divided.identity, terms=terms)
        champion = said.get(case.rival) if case.rival else None
        rival = self.rival or _champion(case.rival, run=said[case.rival or 0])
        runs = [said[case.version], *self._seeds]
        tested = compared(
            board,
            candidate=runs,
            rivals=rival.runs,
            level=taken.level if taken else terms.single,
        )
        found = scores.compare(
            board,
            candidate=runs,
            rival=rival.run,
            noticed=(said[case.version].noticed, champion.noticed if champion else None),
            alerted=said[case.version].alerted(self._guaranteed),
            floors=floors,
            tested=tested,
            terms=terms,
        )
        if taken and tested.better:
            budget = replace(budget, better=budget.better | {taken.pair})
        reasons = {check: list(reasons) for check, reasons in found.reasons.items()}
        figures = found.figures | {
            "reasons": reasons,
            "rival": {"name": rival.name, "among": list(rival.among)},
            "look": self._told(taken, budget=budget, tested=tested, passed=not any(reasons.values())),
            "counts": self._counts(said),
        }
        if not any(reasons.values()):
            figures["reported"] = scores.reported(case.divided.reported, candidate=said[case.version], rival=rival.run)
        return figures

    @cached_property
    def _seeds(self) -> list[Run]:
        entry = self.case.entry
        if entry.pack is None or not entry.sound:
            return []
        return rivals.seeds(entry.pack, frozen=self.case.test, corpus=self.corpus, root=self.context.root)

    def _look(self, *, look: bool, who: str) -> RecordedLook | None:
        """Take a look, or add the reason why there is none."""
        case, terms = self.case, self.context.terms
        resamples = case.divided.gate.sampling.resamples
        if terms.level * (resamples + 1) < 1:
            detail = f"{terms.looks} looks need at least {round(terms.looks / terms.alpha)} draws (evaluate.resamples)"
            raise BadParams(where="promote.looks", detail=detail)
        files = {number: case.entries[number].found for number in (case.version, *([case.rival] if case.rival else []))}
        against = files.get(case.rival or 0, self.rival.digest if self.rival else "")
        pair = digest_of([f"candidate {case.entry.found}", f"rival {against}", f"gate {case.divided.digest}"])
        taken = looks.take(
            self.name,
            version=case.version,
            rival=case.rival,
            gate=case.divided.identity,
            pair=pair,
            terms=terms,
            files=case.entry.found,
            journal=self.context.journal,
            who=who if look else None,
        )
        if taken is None and look:
            case.reasons["looks"] = [
                f"alpha {terms.alpha:g} is spent at this gate set; {gate_set.remedy(self.corpus, terms=terms)}"
            ]
        elif taken is None:
            case.reasons["looks"] = ["not compared, because a comparison is a look at the gate set, which is recorded"]
        return taken

    def _told(self, look: RecordedLook | None, *, budget: looks.Budget, tested: Superiority, passed: bool) -> Json:
        values: Json = {"better": tested.better}
        if passed:
            values |= {"p": tested.p, "p_seeds": tested.p_seeds}
        if look is None:
            return values | {"level": tested.level}
        return values | budget.told(look)

    def _counts(self, said: dict[int, Answered]) -> Json:
        severe = self.context.terms.severe
        return {
            str(v): holdout.counts(run, frozen=self.case.test, severe=severe).model_dump(mode="json")
            for v, run in said.items()
        }

    def _known(self) -> Any | None:
        """Return the scores of the gate's last verdict if its basis is the same."""
        last = last_verdict(self.context.journal, name=self.name, version=self.case.version)
        if last is None or last.metrics["basis"] != self.basis:
            return None
        return last.metrics["figures"].get("scores")


def _champion(version: int | None, *, run: Run) -> Rival:
    return Rival(f"champion, version {version}", run, "", (), (run,))


def last_verdict(journal: Journal, *, name: str, version: int) -> JournalRow | None:
    """Return the journal row of the gate's last verdict on a model version, or ``None``."""
    rows = [r for r in journal.rows(name) if r.to_version == version and "basis" in r.metrics and r.event in JUDGED]
    return rows[-1] if rows else None
