"""Compare a candidate with its rival by one use of the gate set (a look), or reuse an earlier verdict's figures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property

from crisis_corpus import integrity
from crisis_corpus.journal import JournalRow, Standing, canonical
from pipelines.core.errors import BadParams
from pipelines.datasets.items import digest_of
from pipelines.evaluate.model_scores import Json, Run
from pipelines.registry.candidate import Candidate, Context
from pipelines.registry.journal import Journal
from pipelines.registry.promotion import holdout, looks, scores
from pipelines.registry.promotion.holdout import Answered, CannotBeAsked, Frozen, Rival
from pipelines.registry.promotion.looks import DividedTest, RecordedLook
from pipelines.registry.promotion.scores import Superiority, compared

# A champion that has learnt from more of the gate set cannot be compared on the rest.
COMPARABLE = 0.5
JUDGED = ("gated", "refused")


@dataclass
class GateCase:
    """What the gate knows while it judges whether a candidate model version may replace the champion.

    Its rival is the champion or, without one that can be compared, the best baseline.

    Args:
        compare: whether the champion may be the rival, and the use of the gate set is counted (a look).
        divided: the gate set and the rest of the test, without the groups from which the champion has learnt.
        entries: the downloaded candidate and champion by version number.
        comparable: whether the champion can be compared with the candidate; it cannot if it learnt from too much of the
            test.
        reasons: the reasons against the candidate by name of the check; a check that passed has none.
    """

    corpus: str
    version: int
    champion: int | None
    compare: bool
    context: Context
    test: Frozen
    divided: DividedTest
    entries: dict[int, Candidate]
    comparable: bool = True
    reasons: dict[str, list[str]] = field(default_factory=dict)
    figures: Json = field(default_factory=dict)

    @property
    def entry(self) -> Candidate:
        return self.entries[self.version]

    @property
    def name(self) -> str:
        return self.entry.version.name

    @property
    def asked(self) -> list[int]:
        """The candidate's version number and, if it is compared with it, the champion's."""
        return [self.version, *([self.champion] if self.champion and self.comparable else [])]

    def check(self, *, now: Standing) -> None:
        """Make the checks that run no model, and add their reasons and figures to this case.

        ``now``: which versions the journal has as champion, stale or withdrawn.
        """
        until = now.stale.get(self.version)
        removed = f"version {self.version} learnt from records that were taken down, and is removed on "
        self.reasons |= {
            "withdrawn": [f"version {self.version} was withdrawn"] if self.version in now.withdrawn else [],
            "stale": [removed + until[:10]] if until else [],
            **self.entry.faults,
        }
        self.figures["test"] = {
            "digest": self.test.digest,
            "split": self.test.split,
            "n": len(self.test.board.items),
            "taken_down": self.test.taken_down,
        }
        self.reasons |= {"taken_down": [], "split": [], "labels": []}
        for entry in self.entries.values():
            self._learnt(entry)
        self.figures["test"] |= {"gate": len(self.divided.gate.items), "reported": len(self.divided.reported.items)}
        if self.entry.pack is None:
            self.reasons["taken_down"].append("the records that it has learnt from are unknown")
        elif self.entry.pack.manifest.labels != self.test.task.labels:
            own, wanted = len(self.entry.pack.manifest.labels), len(self.test.task.labels)
            self.reasons["labels"].append(f"its {own} labels are not the {wanted} of '{self.test.task.key}'")

    def _learnt(self, entry: Candidate) -> None:
        """Check the records that a model has learnt from; they count only against the candidate.

        Groups from which the champion has learnt are left out for both, so that a champion that leaks is no reason
        against every candidate.
        """
        if entry.pack is None:
            return
        candidate = entry is self.entry
        records, gone = entry.pack.records, entry.taken_down(self.context.vault)
        seen = self.test.seen_by(records)
        self.figures["candidate" if candidate else "champion"] = {
            "version": entry.version.version,
            "files": entry.found,
            "data_commit": entry.pack.manifest.data_commit,
            "split": entry.pack.manifest.split_digest,
            "records": len(records),
            "taken_down": gone,
            "in_test": len(records & self.test.record_ids),
            "groups_in_test": len(seen),
        }
        if not candidate:
            rest = self.divided.without(seen)
            self.comparable = len(rest.gate.items) >= COMPARABLE * len(self.divided.gate.items)
            self.divided = rest if self.comparable else self.divided
            self.figures["champion"]["compared"] = self.comparable
            return
        if gone:
            self.reasons["taken_down"].append(
                f"{gone} of the {len(records)} records that it has learnt from were taken down"
            )
        if seen:
            self.reasons["split"].append(
                f"the candidate (version {self.version}) has learnt from {len(seen)} groups of the test"
            )

    @cached_property
    def baseline(self) -> Rival | None:
        """The best baseline if it is the rival; ``None`` if the champion is, or if there is no test item."""
        context, board = self.context, self.divided.gate
        if len(self.asked) > 1 or not board.items:
            return None
        models = context.terms.baselines if self.compare else ()
        if unknown := sorted(set(models) - (known := holdout.names(context.params, root=context.root))):
            detail = f"no predictions are named {', '.join(unknown)}, only {', '.join(sorted(known))}"
            raise BadParams(where="promote.baselines", detail=detail)
        return holdout.baseline(board, frozen=self.test, corpus=self.corpus, models=models, root=context.root)

    @cached_property
    def basis(self) -> str:
        """A digest of everything that determines the scores, by which an earlier verdict is reused."""
        sampling = self.test.board.sampling
        values = {
            "files": {str(version): entry.found for version, entry in self.entries.items()},
            "champion": self.champion,
            "rival": self.baseline.digest if self.baseline else None,
            # without: another level and other rivals
            "compare": self.compare,
            "seeds": [holdout.answers_of(run) for run in self._seeds],
            "test": self.test.digest,
            "gate": self.divided.digest,
            "terms": self.context.terms.model_dump(mode="json"),
            "sampling": [sampling.resamples, sampling.seed],
        }
        return hashlib.sha256(canonical(values).encode()).hexdigest()

    @cached_property
    def _guaranteed(self) -> dict[str, float]:
        """The recalls that the candidate's card guarantees for its alerts, by label."""
        pack = self.entry.pack
        path = pack.folder / integrity.CARD if pack else None
        if path is None or not path.is_file() or self.entry.faults["card"]:
            return {}
        alerts = json.loads(path.read_bytes()).get("alerts") or {}
        labels = self.test.task.labels
        recalls = {label: alerts[label].get("guaranteed_recall") for label in labels if label in alerts}
        return {label: float(recall) for label, recall in recalls.items() if recall}

    def score(self, *, look: bool, who: str) -> None:
        """Run and compare candidate and rival, or reuse earlier figures; add figures and reasons to this case.

        ``look``: whether to compare them if there are no earlier figures; the comparison is recorded with ``who``.
        """
        last = last_verdict(self.context.journal, name=self.name, version=self.version)
        known = last.metrics["figures"].get("scores") if last and last.metrics["basis"] == self.basis else None
        if known is None:
            floors = scores.floors_of(self.test.task, floors=self.context.terms.recall_floors.get(self.name))
            for label, recall in self._guaranteed.items():
                floors[label] = max(recall, floors.get(label, 0.0))
            answers = self._asked()
            if any(self.reasons.values()):
                return
            known = self._compared(answers, floors=floors, look=look, who=who)
            if known is None:
                return
        self.figures["scores"] = known
        self.reasons |= {check: list(reasons) for check, reasons in known["reasons"].items()}

    def _asked(self) -> dict[int, Answered]:
        """Return the answers of candidate and champion; add a reason for one that cannot be run."""
        if not self.divided.gate.items:
            self.reasons["asked"] = ["the gate set has no item with gold, so nothing was scored"]
            return {}
        answers: dict[int, Answered] = {}
        for number in self.asked:
            check, entry = "asked" if number == self.version else "champion", self.entries[number]
            try:
                if not entry.sound or entry.pack is None:
                    raise CannotBeAsked(detail="its files failed verification, so it was not loaded")
                answers[number] = holdout.ask(entry.folder, frozen=self.test, columns=entry.pack.manifest.inputs)
            except CannotBeAsked as error:
                remedy = "" if check == "asked" else "; withdraw it, or restore its files"
                self.reasons[check] = [f"version {number} was not scored: {error.fields['detail']}{remedy}"]
        return answers

    def _compared(self, answers: dict[int, Answered], *, floors: dict[str, float], look: bool, who: str) -> Json | None:
        terms = self.context.terms
        recorded = self._look(look=look, who=who) if self.compare else None
        if self.compare and recorded is None:
            return None
        board, rows = self.divided.gate, self.context.journal.rows(self.name)
        budget = looks.budget(rows, gate=self.divided.identity, terms=terms)
        own, *others = answers.values()
        champion = others[0] if others else None
        rival = self.baseline or Rival(f"champion, version {self.champion}", others[0], "", (), (others[0],))
        runs = [own, *self._seeds]
        level = recorded.level if recorded else terms.single
        tested = compared(board, candidate=runs, rivals=rival.runs, level=level)
        figures = scores.compare(
            board,
            candidate=runs,
            rival=rival.run,
            noticed=(own.noticed, champion.noticed if champion else None),
            alerted=own.alerted(self._guaranteed),
            floors=floors,
            tested=tested,
            terms=terms,
        )
        if recorded and tested.better:
            budget = replace(budget, better=budget.better | {recorded.pair})
        passed = not any(figures["reasons"].values())
        figures |= {
            "rival": {"name": rival.name, "among": list(rival.among)},
            "look": self._figures(recorded, budget=budget, tested=tested, passed=passed),
            "counts": self._counts(answers),
        }
        if passed:
            figures["reported"] = scores.reported(self.divided.reported, candidate=own, rival=rival.run)
        return figures

    @cached_property
    def _seeds(self) -> list[Run]:
        entry = self.entry
        if entry.pack is None or not entry.sound:
            return []
        return holdout.seeds(entry.pack, frozen=self.test, corpus=self.corpus, root=self.context.root)

    def _look(self, *, look: bool, who: str) -> RecordedLook | None:
        terms = self.context.terms
        resamples = self.divided.gate.sampling.resamples
        if terms.level * (resamples + 1) < 1:
            detail = f"{terms.looks} looks need at least {round(terms.looks / terms.alpha)} draws (evaluate.resamples)"
            raise BadParams(where="promote.looks", detail=detail)
        champion = self.asked[1] if len(self.asked) > 1 else None
        against = self.entries[champion].found if champion else self.baseline.digest if self.baseline else ""
        pair = digest_of([f"candidate {self.entry.found}", f"rival {against}", f"gate {self.divided.digest}"])
        recorded = looks.take(
            self.name,
            version=self.version,
            rival=champion,
            gate=self.divided.identity,
            pair=pair,
            terms=terms,
            files=self.entry.found,
            journal=self.context.journal,
            who=who if look else None,
        )
        if recorded is None and look:
            self.reasons["looks"] = [
                f"alpha {terms.alpha:g} is spent at this gate set; {looks.remedy(self.corpus, terms=terms)}"
            ]
        elif recorded is None:
            self.reasons["looks"] = ["not compared, because a comparison is a look at the gate set, which is recorded"]
        return recorded

    def _figures(self, look: RecordedLook | None, *, budget: looks.Budget, tested: Superiority, passed: bool) -> Json:
        values: Json = {"better": tested.better}
        if passed:
            values |= {"p": tested.p, "p_seeds": tested.p_seeds}
        if look is None:
            return values | {"level": tested.level}
        return values | budget.figures(look)

    def _counts(self, answers: dict[int, Answered]) -> Json:
        test, severe = self.test, self.context.terms.severe
        return {
            str(version): holdout.counts(run, frozen=test, severe=severe).model_dump(mode="json")
            for version, run in answers.items()
        }


def last_verdict(journal: Journal, *, name: str, version: int) -> JournalRow | None:
    """Return the journal row of the gate's last verdict on a model version, or ``None``."""
    rows = [r for r in journal.rows(name) if r.to_version == version and "basis" in r.metrics and r.event in JUDGED]
    return rows[-1] if rows else None
