"""Compute the figures of an audit: flag rates by severity, mean scores by figurative language, and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pipelines.analysis.small_counts import of_units, shown, shown_table
from pipelines.config.label import Moderation
from pipelines.evaluate.paired import holm, mcnemar
from pipelines.llm.outcome import Outcome, counted
from pipelines.moderation.audited_items import AuditedItems
from pipelines.moderation.rate_statistics import Bools, Floats, Json, adjusted, difference, mean, rate, trend
from pipelines.moderation.verdict import Verdict

FLAGS = ("self_harm", "overall")
EVERY = "all"
# Of items by figurative language, as FigSIM's Figure 3 has them.
KINDS = {"figurative": True, "literal": False}
TESTS = ("mcnemar", "randomisation")


class Audit:
    """The figures of one audit; items are in the order of :class:`AuditedItems`.

    Args:
        found: the items with their labels and groups.
        params: the resamples and their seed.
        least: cells of fewer groups of near-duplicates are hidden (:mod:`pipelines.analysis.small_counts`).
    """

    def __init__(self, found: AuditedItems, *, params: Moderation, least: int) -> None:
        items = list(found.items)
        self._least = least
        self._drawn: dict[str, Any] = {"resamples": params.resamples, "seed": params.seed}
        self.groups = np.array([found.groups[item] for item in items])
        merged = {merge.into for merge in found.by.merges.values()}
        self.levels = [label.name for label in found.by.labels if label.name not in merged]
        held = [found.levels(item) for item in items]
        self._at: dict[str, Bools] = {
            name: np.array([name in labels for labels in held], dtype=np.bool_) for name in self.levels
        }
        figurative = [found.figurative(item) for item in items]
        self._kinds: dict[str, Bools] = {
            kind: np.array([each is on for each in figurative], dtype=np.bool_) for kind, on in KINDS.items()
        }
        # the places of a single ordinal label; a category with several labels has no order to test
        self._ordinal = found.by.ordinal
        self._place = np.array(
            [next((i for i, n in enumerate(self.levels) if n in h), 0) for h in held], dtype=np.int64
        )

    def system(self, verdicts: Sequence[Verdict]) -> Json:
        """Return the figures of one system: ``outcomes``, ``partial``, ``flags``, ``scores`` and ``trend``.

        Returns:
            ``outcomes``, ``reasons`` and ``unanswered`` (by level and outcome) count the items; ``partial`` those of
            which only a part was judged. ``flags``: flag -> level or "all" -> a rate over the judged items. ``scores``:
            level or "all" -> "figurative", "literal" and "all" -> a mean, empty without scores. ``trend``: flag -> a
            test over the order of the levels. ``figurative``: the difference of the mean scores of figurative and
            literal items of one level. All values of a hidden cell, and hidden counts, are ``None``; so is the
            difference if the items that it is made of are a hidden cell.
        """
        outcomes = [str(one.outcome) for one in verdicts]
        judged, score = voted(verdicts), scores(verdicts)
        flags = {name: flagged(verdicts, name=name) for name in FLAGS}
        found: Json = {
            "outcomes": counted(outcomes),
            "reasons": counted(one.reason for one in verdicts if one.reason),
            "partial": sum(one.partial for one in verdicts),
            "unanswered": self._unanswered(outcomes, judged=judged),
            "flags": {name: self._by_level(judged, values=values) for name, values in flags.items()},
            "scores": self._scores(score) if not np.isnan(score).all() else {},
        }
        if self._ordinal:
            found["trend"] = {name: trend(flags[name][judged], level=self._place[judged]) for name in FLAGS}
        if (scored := ~np.isnan(score)).any():
            found["figurative"] = self._figurative(score, scored=scored)
        return found

    def _figurative(self, score: Floats, *, scored: Bools) -> Json:
        """Return the difference within levels; only levels with items of both kinds are part of it."""
        figurative, literal = (scored & self._kinds[kind] for kind in KINDS)
        both = np.isin(self._place, np.intersect1d(self._place[figurative], self._place[literal]))
        used = [side & both for side in (figurative, literal)]
        counts = {kind: self._judged(side) for kind, side in zip(self._kinds, used, strict=True)}
        if None in shown(counts, least=self._least).values():
            return dict.fromkeys(("value", "low", "high", "n", "strata"))
        rows = used[0] | used[1]
        return adjusted(
            score[rows], treated=used[0][rows], strata=self._place[rows], groups=self.groups[rows].tolist(),
            **self._drawn,
        )  # fmt: skip

    def _unanswered(self, outcomes: Sequence[str], *, judged: Bools) -> Json:
        kinds = sorted({one for one, ok in zip(outcomes, judged, strict=True) if not ok})
        at = np.array(outcomes)
        counts = [[int((here & (at == kind)).sum()) for kind in kinds] for here in self._at.values()]
        table = np.array(counts, dtype=np.int64).reshape(len(self._at), len(kinds))
        found = shown_table(table, rows=list(self._at), columns=kinds, least=self._least)
        missing = {level: {kind: n for kind, n in each.items() if n != 0} for level, each in found.items()}
        return {level: each for level, each in missing.items() if each}

    def _by_level(self, judged: Bools, *, values: Bools) -> Json:
        of = {EVERY: judged, **{level: judged & at for level, at in self._at.items()}}
        hidden = self._hidden(of)
        found = {level: rate(values[rows], groups=self.groups[rows].tolist()) for level, rows in of.items()}
        return {level: dict.fromkeys(cell) if level in hidden else cell for level, cell in found.items()}

    def _scores(self, score: Floats) -> Json:
        scored = ~np.isnan(score)
        kinds = {**self._kinds, EVERY: np.ones_like(scored)}
        of = {EVERY: scored, **{level: scored & at for level, at in self._at.items()}}
        hidden = self._hidden_scores(of)
        return {
            level: {
                kind: dict.fromkeys(("n", "mean", "low", "high"))
                if (level, kind) in hidden
                else self._mean(score, rows=rows & at)
                for kind, at in kinds.items()
            }
            for level, rows in of.items()
        }

    def _hidden_scores(self, of: Mapping[str, Bools]) -> set[tuple[str, str]]:
        """Return the cells (level, kind) of scores that are hidden: of few groups, or that would give such away."""
        levels = [level for level in of if level != EVERY]
        rows = [[self._judged(of[level] & at) for at in self._kinds.values()] for level in levels]
        table = np.array(rows, dtype=np.int64).reshape(len(levels), len(self._kinds))
        found = shown_table(table, rows=levels, columns=list(self._kinds), least=self._least)
        found[EVERY] = shown({k: self._judged(of[EVERY] & at) for k, at in self._kinds.items()}, least=self._least)
        gone = {(level, kind) for level, each in found.items() for kind, n in each.items() if n is None}
        # a hidden level has no kind that would show a part of it
        whole = self._hidden(of)
        return gone | {(level, kind) for level in whole for kind in (*self._kinds, EVERY)}

    def _hidden(self, of: Mapping[str, Bools]) -> set[str]:
        """Return the levels, or their total, whose cells are hidden; ``of`` has the items of each."""
        counts = {level: self._judged(rows) for level, rows in of.items()}
        total = {EVERY: counts.pop(EVERY)}
        cells = {**shown(counts, least=self._least), **shown(total, least=self._least)}
        return {level for level, n in cells.items() if n is None}

    def _judged(self, rows: Bools) -> int:
        units: list[str] = self.groups[rows].tolist()
        return of_units(units, least=self._least)

    def _mean(self, score: Floats, *, rows: Bools) -> Json:
        return mean(score[rows], groups=self.groups[rows].tolist(), **self._drawn)

    def pairs(self, systems: Mapping[str, Sequence[Verdict]]) -> list[Json]:
        """Compare each pair of systems on the items that both judged, for each flag, with Holm's correction over all.

        Returns:
            For each pair and flag ``a``, ``b``, ``flag``, ``n``, ``a_only`` and ``b_only`` (items that only one flags),
            ``difference`` of the rates with its interval, ``p`` and ``holm`` by test.
        """
        found = []
        for a, b in combinations(systems, 2):
            both = voted(systems[a]) & voted(systems[b])
            for name in FLAGS:
                one, other = (flagged(systems[s], name=name)[both] for s in (a, b))
                apart, p = difference(one, other, groups=self.groups[both].tolist(), **self._drawn)
                a_only, b_only = int((one & ~other).sum()), int((other & ~one).sum())
                counts: Json = {"n": int(both.sum()), "a_only": a_only, "b_only": b_only}
                tests = {"mcnemar": mcnemar(a_only, b_only), "randomisation": p}
                found.append({"a": a, "b": b, "flag": name, **counts, "difference": apart, "p": tests})
        corrected = {test: holm([pair["p"][test] for pair in found]) for test in TESTS}
        return [pair | {"holm": {test: corrected[test][i] for test in TESTS}} for i, pair in enumerate(found)]


def voted(verdicts: Sequence[Verdict]) -> Bools:
    """Return which items the system judged."""
    return np.array([one.outcome is Outcome.VOTE for one in verdicts], dtype=np.bool_)


def flagged(verdicts: Sequence[Verdict], *, name: str) -> Bools:
    """Return which items the system flags for self-harm (``self_harm``) or for any category (``overall``)."""
    return np.array([bool(getattr(one, name)) for one in verdicts], dtype=np.bool_)


def scores(verdicts: Sequence[Verdict]) -> Floats:
    """Return the system's scores of self-harm, NaN where there is none."""
    return np.array([np.nan if one.score is None else one.score for one in verdicts], dtype=np.float64)
