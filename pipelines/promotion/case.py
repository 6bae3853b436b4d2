"""Collect what the gate knows of a candidate model version, and make every check that runs no model."""

from __future__ import annotations

from dataclasses import dataclass, field

from crisis_corpus.state import Standing
from pipelines.evaluate.model_scores import Json
from pipelines.promotion.gate_set import DividedTest
from pipelines.promotion.holdout import Frozen
from pipelines.registry.candidate import Candidate
from pipelines.vault.vault import Vault

# A champion that has learnt from more of the gate set cannot be compared on the rest.
COMPARABLE = 0.5


@dataclass
class GateCase:
    """What the gate knows while it judges whether a candidate model version may replace the champion.

    Args:
        version: the candidate's version number.
        champion: the version number of the champion that the candidate is to replace, if any.
        test: the whole frozen test split.
        divided: the gate set and the rest of the test, without the groups from which the champion has learnt.
        entries: the downloaded candidate and champion by version number.
        comparable: whether the champion can be compared with the candidate; it cannot if it learnt from too much of the
            test.
        reasons: the reasons against the candidate by name of the check; a check that passed has none.
        figures: see :class:`pipelines.promotion.gate.GateVerdict`.
    """

    version: int
    champion: int | None
    test: Frozen
    divided: DividedTest
    entries: dict[int, Candidate]
    comparable: bool = True
    reasons: dict[str, list[str]] = field(default_factory=dict)
    figures: Json = field(default_factory=dict)

    @property
    def entry(self) -> Candidate:
        """The downloaded candidate."""
        return self.entries[self.version]

    @property
    def rival(self) -> int | None:
        """The champion's version number if the candidate is compared with it, else ``None``."""
        return self.champion if self.comparable else None

    def check(self, *, now: Standing, vault: Vault) -> None:
        """Make the checks that run no model, and add their reasons and figures to this case.

        ``now``: which versions the journal has as champion, stale or withdrawn.
        """
        until = now.stale.get(self.version)
        self.reasons |= {
            "withdrawn": [f"version {self.version} was withdrawn"] if self.version in now.withdrawn else [],
            "stale": [
                f"version {self.version} learnt from records that were taken down, and is removed on {until[:10]}"
            ]
            if until
            else [],
        }
        self.reasons.update(self.entry.faults)
        self.figures["test"] = {
            "digest": self.test.digest,
            "split": self.test.split,
            "n": len(self.test.board.items),
            "taken_down": self.test.taken_down,
        }
        self.reasons |= {"taken_down": [], "split": [], "labels": []}
        for entry in self.entries.values():
            self._learnt(entry, vault=vault)
        self.figures["test"] |= {"gate": len(self.divided.gate.items), "reported": len(self.divided.reported.items)}
        if self.entry.pack is None:
            self.reasons["taken_down"].append("the records that it has learnt from are unknown")
        elif self.entry.pack.manifest.labels != self.test.task.labels:
            found, wanted = len(self.entry.pack.manifest.labels), len(self.test.task.labels)
            self.reasons["labels"].append(f"its {found} labels are not the {wanted} of '{self.test.task.key}'")

    def _learnt(self, entry: Candidate, *, vault: Vault) -> None:
        """Check the records that a model has learnt from; they count only against the candidate.

        Groups from which the champion has learnt are left out for both, so that a champion that leaks is no reason
        against every candidate.
        """
        if entry.pack is None:
            return
        candidate = entry is self.entry
        records, gone = entry.pack.records, entry.taken_down(vault)
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
