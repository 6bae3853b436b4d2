"""Ask moderation systems about the items with gold, and compare what they flag.

FigSIM 4.4: flag rates by severity (Table 2), and the mean score of self-harm by severity and figurative language
(Figure 3). Which categories a scheme has in their place: :class:`AuditedItems`. An item without a verdict (refused,
malformed, failed) is in no rate: it is counted beside them. Answers are first looked up in the encrypted store of
answers, so a killed stage and a later snapshot request only missing ones.

Rates have Wilson's interval (1927) at the effective sample size of grouped items (Korn and Graubard 1998; Franco et al.
2019): n over the design effect, and the number of groups where no item or every item is flagged. Means and differences
have a percentile bootstrap over groups of near-duplicates. Systems are compared on the items that both judged:
McNemar's exact test, which ignores groups, and a randomisation test that exchanges the two systems' flags for a whole
group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.core.config.label import Moderation
from pipelines.core.config.params import Params
from pipelines.evaluate.analysis.small_counts import Counts, of_units, shown, shown_table
from pipelines.evaluate.moderation.channels import AuditedItems, Judged, System, read
from pipelines.evaluate.moderation.moderator import Verdict, moderator_of
from pipelines.evaluate.paired import holm, mcnemar
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Outcome, check_failures, counted
from pipelines.metrics.bootstrap import TIE, cluster_sums, percentile, weights, wilson
from pipelines.store import approvals, tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Json = dict[str, Any]
DIGITS = 6


def rate(flags: Bools, *, groups: Sequence[str]) -> Json:
    """Return how many of the items are flagged: ``flagged``, ``n``, ``rate`` and its interval (``low``, ``high``).

    Without items, the rate and its interval are ``None``.
    """
    n, flagged = len(flags), int(flags.sum())
    if not n:
        return {"flagged": 0, "n": 0, "rate": None, "low": None, "high": None}
    low, high = wilson(flagged / n, n=_effective(flags.astype(np.float64), groups=groups))
    return {"flagged": flagged, "n": n, "rate": rounded(flagged / n), "low": rounded(low), "high": rounded(high)}


def _effective(values: Floats, *, groups: Sequence[str]) -> float:
    """Return the effective number of items: divided by the design effect of the groups, if that is above 1."""
    n, p = len(values), float(values.mean())
    sums = cluster_sums(np.stack([values, np.ones(n)], axis=1), groups=groups)
    if p in (0.0, 1.0) or len(sums) < 2:
        return float(len(sums))
    residuals = sums[:, 0] - p * sums[:, 1]
    variance = len(sums) / (len(sums) - 1) * float((residuals**2).sum()) / n**2
    return n / max(1.0, variance * (n - 1) / (p * (1 - p)))


def mean(values: Floats, *, groups: Sequence[str], resamples: int, seed: int) -> Json:
    """Return ``n``, the ``mean`` of the values and its interval; ``None`` without values, or for one group."""
    if not len(values):
        return {"n": 0, "mean": None, "low": None, "high": None}
    sums = cluster_sums(np.stack([values, np.ones(len(values))], axis=1), groups=groups)
    drawn = np.concatenate([*_resampled(sums, resamples=resamples, seed=seed)])
    low, high = percentile(drawn[:, 0] / drawn[:, 1]) if len(sums) > 1 else (None, None)
    return {"n": len(values), "mean": rounded(float(values.mean())), "low": rounded(low), "high": rounded(high)}


def trend(flags: Bools, *, level: npt.NDArray[np.int64]) -> Json:
    """Return Cochran and Armitage's test for a trend of the rate over equally spaced levels: ``z`` and two-sided ``p``.

    It ignores groups. Both are ``None`` if no item or every item is flagged, or all have one level.
    """
    p = flags.mean() if len(flags) else 0.0
    spread = float(((level - level.mean()) ** 2).sum()) if len(level) else 0.0
    if p in (0.0, 1.0) or not spread:
        return {"z": None, "p": None}
    z = float(((level - level.mean()) * flags).sum()) / math.sqrt(p * (1 - p) * spread)
    return {"z": round(z, 2), "p": rounded(math.erfc(abs(z) / math.sqrt(2)))}


def difference(a: Bools, b: Bools, *, groups: Sequence[str], resamples: int, seed: int) -> tuple[Json, float]:
    """Return the difference of two systems' flag rates on the same items, and the p-value of the randomisation test."""
    apart = a.astype(np.float64) - b.astype(np.float64)
    interval = mean(apart, groups=groups, resamples=resamples, seed=seed)
    if not len(apart):
        return {"value": None, "low": None, "high": None}, 1.0
    sums = cluster_sums(apart[:, None], groups=groups)[:, 0]
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, len(sums)))
    # the observed assignment is one of the exchanges
    hits = int((np.abs(signs @ sums) >= abs(sums.sum()) - TIE).sum())
    p = (1 + hits) / (1 + resamples)
    return {"value": interval["mean"], "low": interval["low"], "high": interval["high"]}, rounded(p)


def adjusted(
    values: Floats, *, treated: Bools, strata: npt.NDArray[np.int64], groups: Sequence[str], resamples: int, seed: int
) -> Json:
    """Return the mean difference of treated and other items within strata: ``value``, interval, ``n`` and ``strata``.

    A stratum counts by n1 n0 / (n1 + n0), its weight in a common difference (Mantel and Haenszel); one without both
    kinds does not count. The value is ``None`` if no stratum has both.
    """
    if not len(values):
        return {"value": None, "low": None, "high": None, "n": 0, "strata": 0}
    inside = [(strata == kind) & (treated == on) for kind in sorted({*strata.tolist()}) for on in (True, False)]
    rows = np.stack([column for each in inside for column in (each.astype(np.float64), each * values)], axis=1)
    sums = cluster_sums(rows, groups=groups)
    value, used = _common(sums.sum(axis=0)[None])
    if not used:
        return {"value": None, "low": None, "high": None, "n": len(values), "strata": 0}
    every = np.concatenate([_common(block)[0] for block in _resampled(sums, resamples=resamples, seed=seed)])
    low, high = percentile(every[~np.isnan(every)])
    ends = {"low": rounded(low), "high": rounded(high)}
    return {"value": rounded(float(value[0])), **ends, "n": len(values), "strata": used}


def _common(sums: Floats) -> tuple[Floats, int]:
    """Return the common difference of rows of sums (n1, t1, n0, t0 of each stratum), and how many strata count."""
    n1, t1, n0, t0 = (sums[:, i::4] for i in range(4))
    weight = n1 * n0 / np.maximum(n1 + n0, 1)
    apart = t1 / np.maximum(n1, 1) - t0 / np.maximum(n0, 1)
    total = weight.sum(axis=1)
    common: Floats = np.divide((weight * apart).sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0)
    return common, int((weight[0] > 0).sum())


def _resampled(sums: Floats, *, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield blocks of the sums of groups that are drawn as a whole, shape (resamples, columns)."""
    for block in weights(len(sums), resamples=resamples, rng=np.random.default_rng(seed)):
        yield block.astype(np.float64) @ sums


def rounded(value: float | None) -> Any:
    """Return a number with six digits, so that metrics are the same on every machine."""
    return None if value is None else round(float(value), DIGITS)


FLAGS = ("self_harm", "overall")
EVERY = "all"
# Of items by whether they have a label of another category (FigSIM's Figure 3: figurative language).
KINDS = {"present": True, "absent": False}
TESTS = ("mcnemar", "randomisation")


class Audit:
    """The figures of one audit; items are in the order of :class:`AuditedItems`.

    Args:
        least: cells of fewer groups of near-duplicates are hidden (:mod:`pipelines.evaluate.analysis.small_counts`).
    """

    def __init__(self, audited: AuditedItems, *, params: Moderation, least: int) -> None:
        items = list(audited.items)
        self._least = least
        self._drawn: dict[str, Any] = {"resamples": params.resamples, "seed": params.seed}
        self.groups = np.array([audited.groups[item] for item in items])
        merged = {merge.into for merge in audited.by.merges.values()}
        self.levels = [label.name for label in audited.by.labels if label.name not in merged]
        held = [audited.levels(item) for item in items]
        self._at = {name: _bools(name in labels for labels in held) for name in self.levels}
        present = [audited.present(item) for item in items]
        self._kinds = {kind: _bools(each is on for each in present) for kind, on in KINDS.items()}
        # the places of a single ordinal label; a category with several labels has no order to test
        self._ordinal = audited.by.ordinal
        places = [next((i for i, n in enumerate(self.levels) if n in labels), 0) for labels in held]
        self._place = np.array(places, dtype=np.int64)

    def system(self, verdicts: Sequence[Verdict]) -> Json:
        """Return the figures of one system: ``outcomes``, ``partial``, ``flags``, ``scores`` and ``trend``.

        Returns:
            ``outcomes``, ``reasons`` and ``unanswered`` (by level and outcome) count the items; ``partial`` those of
            which only a part was judged. ``flags``: flag -> level or "all" -> a rate over the judged items. ``scores``:
            level or "all" -> "present", "absent" and "all" -> a mean, empty without scores. ``trend``: flag -> a
            test over the order of the levels. ``difference``: of the mean scores of items of one level that have a
            label of :attr:`AuditedItems.beside` and of those that have none. All values of a hidden cell, and hidden
            counts, are ``None``; so is the difference if the items that it is made of are a hidden cell.
        """
        outcomes = [str(verdict.outcome) for verdict in verdicts]
        judged = voted(verdicts)
        score = np.array([np.nan if verdict.score is None else verdict.score for verdict in verdicts], np.float64)
        flags = {name: flagged(verdicts, name=name) for name in FLAGS}
        figures: Json = {
            "outcomes": counted(outcomes),
            "reasons": counted(verdict.reason for verdict in verdicts if verdict.reason),
            "partial": sum(verdict.partial for verdict in verdicts),
            "unanswered": self._unanswered(outcomes, judged=judged),
            "flags": {name: self._by_level(judged, values=values) for name, values in flags.items()},
            "scores": self._scores(score) if not np.isnan(score).all() else {},
        }
        if self._ordinal:
            figures["trend"] = {name: trend(flags[name][judged], level=self._place[judged]) for name in FLAGS}
        if (scored := ~np.isnan(score)).any():
            figures["difference"] = self._difference(score, scored=scored)
        return figures

    def _difference(self, score: Floats, *, scored: Bools) -> Json:
        """Return the difference within levels; only levels with items of both kinds are part of it."""
        present, absent = (scored & self._kinds[kind] for kind in KINDS)
        both = np.isin(self._place, np.intersect1d(self._place[present], self._place[absent]))
        used = [side & both for side in (present, absent)]
        counts = {kind: self._judged(side) for kind, side in zip(self._kinds, used, strict=True)}
        if None in shown(counts, least=self._least).values():
            return dict.fromkeys(("value", "low", "high", "n", "strata"))
        rows = used[0] | used[1]
        groups = self.groups[rows].tolist()
        return adjusted(score[rows], treated=used[0][rows], strata=self._place[rows], groups=groups, **self._drawn)

    def _unanswered(self, outcomes: Sequence[str], *, judged: Bools) -> Json:
        kinds = sorted({outcome for outcome, ok in zip(outcomes, judged, strict=True) if not ok})
        at = np.array(outcomes)
        counts = [[int((here & (at == kind)).sum()) for kind in kinds] for here in self._at.values()]
        table = self._table(counts, columns=kinds)
        missing = {level: {kind: n for kind, n in each.items() if n != 0} for level, each in table.items()}
        return {level: each for level, each in missing.items() if each}

    def _members(self, rows: Bools) -> dict[str, Bools]:
        return {EVERY: rows, **{level: rows & at for level, at in self._at.items()}}

    def _by_level(self, judged: Bools, *, values: Bools) -> Json:
        members = self._members(judged)
        hidden = self._hidden(members)
        rates = {level: rate(values[rows], groups=self.groups[rows].tolist()) for level, rows in members.items()}
        return {level: dict.fromkeys(cell) if level in hidden else cell for level, cell in rates.items()}

    def _scores(self, score: Floats) -> Json:
        scored = ~np.isnan(score)
        kinds = {**self._kinds, EVERY: np.ones_like(scored)}
        members = self._members(scored)
        hidden = self._hidden_scores(members)

        def cell(level: str, kind: str) -> Json:
            rows = members[level] & kinds[kind]
            means = mean(score[rows], groups=self.groups[rows].tolist(), **self._drawn)
            return dict.fromkeys(means) if (level, kind) in hidden else means

        return {level: {kind: cell(level, kind) for kind in kinds} for level in members}

    def _hidden_scores(self, members: Mapping[str, Bools]) -> set[tuple[str, str]]:
        """Return the cells (level, kind) of scores that are hidden: of few groups, or that would give such away."""
        rows = [[self._judged(members[level] & at) for at in self._kinds.values()] for level in self._at]
        cells = self._table(rows, columns=list(self._kinds))
        cells[EVERY] = shown({k: self._judged(members[EVERY] & at) for k, at in self._kinds.items()}, least=self._least)
        gone = {(level, kind) for level, each in cells.items() for kind, n in each.items() if n is None}
        # a hidden level has no kind that would show a part of it
        return gone | {(level, kind) for level in self._hidden(members) for kind in (*self._kinds, EVERY)}

    def _table(self, rows: list[list[int]], *, columns: list[str]) -> dict[str, Counts]:
        table = np.array(rows, dtype=np.int64).reshape(len(self._at), len(columns))
        return shown_table(table, rows=list(self._at), columns=columns, least=self._least)

    def _hidden(self, members: Mapping[str, Bools]) -> set[str]:
        """Return the levels, or their total, whose cells are hidden; ``members`` has the items of each."""
        counts = {level: self._judged(rows) for level, rows in members.items()}
        total = {EVERY: counts.pop(EVERY)}
        cells = {**shown(counts, least=self._least), **shown(total, least=self._least)}
        return {level for level, n in cells.items() if n is None}

    def _judged(self, rows: Bools) -> int:
        units: list[str] = self.groups[rows].tolist()
        return of_units(units, least=self._least)

    def pairs(self, systems: Mapping[str, Sequence[Verdict]]) -> list[Json]:
        """Compare each pair of systems on the items that both judged, for each flag, with Holm's correction over all.

        Returns:
            For each pair and flag ``a``, ``b``, ``flag``, ``n``, ``a_only`` and ``b_only`` (items that only one flags),
            ``difference`` of the rates with its interval, ``p`` and ``holm`` by test.
        """
        pairs = []
        for a, b in combinations(systems, 2):
            both = voted(systems[a]) & voted(systems[b])
            for name in FLAGS:
                flags_a, flags_b = (flagged(systems[s], name=name)[both] for s in (a, b))
                apart, p = difference(flags_a, flags_b, groups=self.groups[both].tolist(), **self._drawn)
                a_only, b_only = int((flags_a & ~flags_b).sum()), int((flags_b & ~flags_a).sum())
                counts: Json = {"n": int(both.sum()), "a_only": a_only, "b_only": b_only}
                tests = {"mcnemar": mcnemar(a_only, b_only), "randomisation": p}
                pairs.append({"a": a, "b": b, "flag": name, **counts, "difference": apart, "p": tests})
        corrected = {test: holm([pair["p"][test] for pair in pairs]) for test in TESTS}
        return [pair | {"holm": {test: corrected[test][i] for test in TESTS}} for i, pair in enumerate(pairs)]


def voted(verdicts: Sequence[Verdict]) -> Bools:
    return _bools(verdict.outcome is Outcome.VOTE for verdict in verdicts)


def flagged(verdicts: Sequence[Verdict], *, name: str) -> Bools:
    """Return which items the system flags for self-harm (``self_harm``) or for any category (``overall``)."""
    return _bools(bool(getattr(verdict, name)) for verdict in verdicts)


def _bools(values: Iterable[bool]) -> Bools:
    return np.array(list(values), dtype=np.bool_)


STAGE = Stage(
    reads=("data", "gold", "split"),
    params=("moderation", "moderators", "analysis.least", "votes.max_failed", "distributions", CONTENT, SCHEME),
)


def run(ctx: Context) -> dict[str, Any]:
    """Audit ``moderation.systems``; write ``snapshot/<corpus>/moderation/moderation.parquet`` and metrics.

    Without a system, nothing is decrypted or sent, and the table is empty.

    Returns:
        ``by`` (the category of the levels), ``beside`` (by the presence of what scores are given too), ``levels``,
        ``least`` (smaller cells are hidden), ``items``, ``groups`` and
        ``taken_down``; ``systems``: the kind, model, input and ``scale`` of each with its ``requests``, ``cost`` in US
        dollars and figures (see :class:`Audit`); ``pairs`` (see its method ``pairs``).
    """
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    names = params.moderation.of(corpus)
    metrics: dict[str, Any] = {"items": 0, "systems": {}, "pairs": []}
    rows: list[dict[str, Any]] = []
    if names:
        audited = read(corpus, params=params, vault=vault, root=root)
        judged = _judged(names, audited=audited, ctx=ctx)
        rows = [row for name, judgement in judged.items() for row in _rows(name, judgement=judgement, audited=audited)]
        metrics = _metrics(audited, judged=judged, params=params)
    tables.write_rows(rows, root / "snapshot" / corpus / "moderation" / "moderation.parquet", name="moderation")
    return write_metrics(metrics, root / "metrics" / corpus / "moderation.json")


def planned(ctx: Context) -> Iterator[PlannedRequests]:
    """Yield what the stage would send to each system, the receiver, and the cost; nothing is sent."""
    names = ctx.params.moderation.of(ctx.corpus)
    if not names:
        return
    items = list(read(ctx.corpus, params=ctx.params, vault=ctx.vault, root=ctx.root).items.values())
    with AnswerStore.open(ctx.settings.answers_url) as answers:
        for name in names:
            yield from _system(name, answers=answers, ctx=ctx).plan(items)


def _system(name: str, *, answers: AnswerStore, ctx: Context) -> System:
    sources = approvals.sources_of(ctx.corpus, params=ctx.params, root=ctx.root)
    return System(name, params=ctx.params, settings=ctx.settings, answers=answers, vault=ctx.vault, sources=sources)


def _judged(names: tuple[str, ...], *, audited: AuditedItems, ctx: Context) -> dict[str, Judged]:
    items = list(audited.items.values())
    judged: dict[str, Judged] = {}
    with AnswerStore.open(ctx.settings.answers_url) as answers:
        for name in names:
            judged[name] = _system(name, answers=answers, ctx=ctx).judge(items)
    # after all systems, so that the answers of every system are kept if one fails
    for name, judgement in judged.items():
        check_failures(
            [verdict.outcome for verdict in judgement.verdicts], labeller=name, most=ctx.params.votes.max_failed
        )
    return judged


def _rows(name: str, *, judgement: Judged, audited: AuditedItems) -> Iterator[dict[str, Any]]:
    for (record_id, image), verdict in zip(audited.items, judgement.verdicts, strict=True):
        said = asdict(verdict) | {"outcome": str(verdict.outcome)}
        if verdict.outcome is not Outcome.VOTE:
            said["categories"] = None
        yield {"record_id": record_id, "image": image, "system": name} | said


def _metrics(audited: AuditedItems, *, judged: dict[str, Judged], params: Params) -> dict[str, Any]:
    audit = Audit(audited, params=params.moderation, least=params.analysis.least)
    systems = {}
    for name, judgement in judged.items():
        systems[name] = (
            moderator_of(name, params=params).described()
            | {"requests": judgement.requests, "cost": judgement.cost}
            | audit.system(judgement.verdicts)
        )
    return {
        "by": audited.by.key,
        "beside": audited.scheme.compared_by(audited.beside.key) if audited.beside else "",
        "least": params.analysis.least,
        "levels": audit.levels,
        "items": len(audited.items),
        "groups": len({*audited.groups.values()}),
        "taken_down": audited.taken_down,
        "systems": systems,
        "pairs": audit.pairs({name: judgement.verdicts for name, judgement in judged.items()}),
    }
