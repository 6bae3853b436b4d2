"""Make the tables of ``corpus votes-report``: agreement, outcomes, refusals and cost, as counts only.

All numbers come from the metrics of the stages ``votes``, ``silver`` and ``injection_test``; no table of records is
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load
from pipelines.label.silver_statistics import AGREEMENTS
from pipelines.metrics import label_tables
from pipelines.metrics.label_tables import UNDEFINED, Distribution, Layout, Sheet, percent
from pipelines.workspace.clone import workspace

OUTCOMES = ("vote", "abstained", "refused", "malformed", "failed")
HEADINGS = {name: name.capitalize() for name in ("train", "dev", "validation", "test")}
SUBSETS = {"train_consensus": "Train-Consensus", "train_unanimous": "Train-Unanimous"}


def gather(root: Path, corpus: str) -> dict[str, Any]:
    """Read the metrics of a corpus in a clone: votes by labeller, silver labels and injection tests by ensemble."""
    folder = root / "metrics" / corpus
    found: dict[str, Any] = {"corpus": corpus}
    for part in ("votes", "silver", "injection_test"):
        files = sorted(folder.glob(f"{part}-*.json"))
        if files:
            found[part] = {file.stem.removeprefix(f"{part}-"): json.loads(file.read_text()) for file in files}
    return found


def summary(gathered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the votes part of ``corpus status --json``: outcomes by labeller, agreement by ensemble, and cost.

    Agreement counts decisions of all splits and categories: ``unanimous``, ``consensus`` (a majority, not all) and
    ``none``.
    """
    votes = gathered.get("votes", {})
    cached = [found["cache_hits"] for found in votes.values() if "cache_hits" in found]
    return {
        "by_labeller": {name: found["outcomes"] for name, found in votes.items()},
        "ensembles": {
            name: {key: sum(counts[key] for counts in found["agreement"].values()) for key in AGREEMENTS}
            for name, found in gathered.get("silver", {}).items()
        },
        "cost": round(sum(found.get("cost", 0.0) for found in votes.values()), 6),
        **({"cache_hits": sum(cached)} if cached else {}),
    }


def sheets(gathered: Mapping[str, Any], *, root: Path = Path(), everything: bool = True) -> Iterator[Sheet]:
    """Yield the tables of ``corpus votes-report`` for which ``gathered`` has metrics, in the order of printing.

    Without ``everything`` only the summary tables: outcomes, agreement, comparison on validation, review queue and
    injection tests.
    """
    if gathered.get("votes"):
        yield labellers(gathered["votes"])
    for name, found in gathered.get("silver", {}).items():
        for key, own in found["categories"].items():
            titled = name if len(found["categories"]) == 1 else f"{name}, {key}"
            yield from (_titled(sheet, titled) for sheet in _agreed(own, members=len(found["members"])))
            if everything:
                scheme = load(found["scheme"], root=root)
                yield from _details(titled, own, layout=Layout.of(scheme, category=scheme.category(key)))
            if own["comparison"]:
                yield _titled(comparison(own["comparison"]), titled)
            if everything:
                for system, scored in own["test"].items():
                    yield label_tables.table_12(scored, name=f"Test: {titled if system == 'ensemble' else system}")
        yield _titled(queue(found["queue"], records=found["records"]), name)
    tests = {
        name if len(found["categories"]) == 1 else f"{name}, {key}": own | {"detected": found["detected"]}
        for name, found in gathered.get("injection_test", {}).items()
        for key, own in found["categories"].items()
    }
    if tests:
        yield _flat("Injected copies", tests)
        yield _flat("Members that obey every attack", {name: found.get("swayed", {}) for name, found in tests.items()})
        if everything:
            yield from _families(tests)


def _agreed(found: Mapping[str, Any], *, members: int) -> Iterator[Sheet]:
    """Yield CRADLE's Table 5 and, if the decided labels are not always the majority's, the agreement on these."""
    paper, own = found["agreement_paper"], found["agreement"]
    yield label_tables.table_5({HEADINGS.get(s, s): paper[s] for s in _in_order(paper)}, members=members)
    if any(counts["differs"] for counts in paper.values()):
        table = label_tables.table_5({HEADINGS.get(s, s): own[s] for s in _in_order(own)}, members=members)
        differs = tuple(f"{paper[s]['differs']:,}" for s in _in_order(paper))
        rows = (*table.rows, ("Differs from the agreement between the labellers", *differs))
        yield Sheet("Agreement on the decided labels", table.columns, rows)


def confidence(found: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Return a table of the mean probability of the silver labels beside the share that gold confirms."""
    rows = [
        (HEADINGS.get(split, split), f"{row['n']:,}", f"{100 * row['mean']:.1f}", f"{100 * row['exact']:.1f}")
        for split, row in found.items()
        if row["n"]
    ]
    return Sheet(
        "Probability of the labels", ("Split", "Records", "Mean probability %", "Exactly right %"), tuple(rows)
    )


def _details(name: str, found: Mapping[str, Any], *, layout: Layout) -> Iterator[Sheet]:
    headings = SUBSETS | HEADINGS
    read = {headings[key]: Distribution.read(plain) for key, plain in found["distributions"].items()}
    given = {subset: read[subset] for subset in headings.values() if subset in read and read[subset].instances}
    people = {key: d for key, d in given.items() if key in HEADINGS.values()}
    train = {key.removeprefix("Train-"): d for key, d in given.items() if key not in people}

    yield _titled(right_by_agreement(found["by_agreement"]), name)
    if any(row["n"] for row in found["posterior"].values()):
        yield _titled(confidence(found["posterior"]), name)
    if people:
        yield label_tables.table_1(people, layout=layout)
        yield label_tables.table_2(people)
        if layout.times:
            yield label_tables.table_3(people, layout=layout)
    if train:
        yield _titled(label_tables.table_6(train, layout=layout), name)
        yield _titled(label_tables.table_7(train, layout=layout), name)
    if given:
        yield _titled(label_tables.table_11(given, layout=layout), name)
    if any(found["violations"].values()):
        yield _titled(violations(found["violations"]), name)
    if found["refusals"]:
        yield _titled(refusals(found["refusals"]), name)


def _titled(sheet: Sheet, ensemble: str) -> Sheet:
    return Sheet(f"{ensemble}: {sheet.title[0].lower()}{sheet.title[1:]}", sheet.columns, sheet.rows)


def _in_order(splits: Mapping[str, Any]) -> list[str]:
    return [split for split in HEADINGS if split in splits] + sorted(set(splits) - set(HEADINGS))


def labellers(votes: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Return a table of each labeller's outcomes, repaired votes, cost and reused answers."""
    rows = []
    for name, found in votes.items():
        outcomes = [f"{found['outcomes'].get(outcome, 0):,}" for outcome in OUTCOMES]
        hits = f"{found['cache_hits']:,}" if "cache_hits" in found else UNDEFINED
        rows.append((name, *outcomes, f"{found['repaired']:,}", f"{found['cost']:.4f}", hits))
    columns = ("Labeller", *(outcome.capitalize() for outcome in OUTCOMES), "Repaired", "US $", "From the cache")
    return Sheet("Answers", columns, tuple(rows))


def refusals(found: Mapping[str, Mapping[str, int]]) -> Sheet:
    """Return a table of how many posts with each gold label each ensemble member refused."""
    members = [name for name in next(iter(found.values())) if name != "gold"]
    rows = [
        (label, f"{n['gold']:,}", *(f"{n[m]:,} ({percent(n[m], n['gold'], digits=1)}%)" for m in members))
        for label, n in found.items()
    ]
    return Sheet("Refusals by gold label", ("Label", "Gold", *members), tuple(rows))


def violations(found: Mapping[str, Mapping[str, int]]) -> Sheet:
    """Return a table of how many label sets of gold, members and ensemble break each scheme rule."""
    rules = sorted({rule for counts in found.values() for rule in counts})
    rows = [(rule.replace("_", " "), *(f"{counts.get(rule, 0):,}" for counts in found.values())) for rule in rules]
    return Sheet("Label sets that break a rule", ("Rule", *found), tuple(rows))


def right_by_agreement(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Sheet:
    """Return a table of how often an ensemble's labels equal gold, by the members' agreement."""
    columns = [c for split in found for c in (f"{HEADINGS.get(split, split)} n", "exact %")]
    rows = []
    for name in AGREEMENTS:
        counts = [found[split][name] for split in found]
        rows.append((name, *(cell for n in counts for cell in (f"{n['n']:,}", percent(n["exact"], n["n"], digits=1)))))
    return Sheet("Exactly right by agreement", ("Agreement", *columns), tuple(rows))


def comparison(found: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Return a table of validation scores of an ensemble's aggregators and members, with leads over the best one."""
    rows = []
    for name, row in found.items():
        cells = [
            f"{row['all'][key]:.3f} [{row['interval'][key][0]:.3f}, {row['interval'][key][1]:.3f}]"
            for key in ("exact", "jaccard", "micro_f1", "macro_f1")
        ]
        lead = f"{row['lead']['value']:+.3f} (p {row['lead']['probability']:.2f})" if "lead" in row else UNDEFINED
        rows.append((name, row["kind"], f"{row['n_valid']}/{row['n']}", *cells, lead))
    columns = (
        "On validation",
        "Kind",
        "Valid",
        "Exact",
        "Jaccard",
        "Micro F1",
        "Macro F1",
        "Lead over the best member",
    )
    return Sheet("Ways of voting, on validation", columns, tuple(rows))


def queue(found: Mapping[str, Any], *, records: int) -> Sheet:
    """Return a table of how many records are queued for review, by reason; a record may have several reasons."""
    rows = [
        (reason.replace("_", " "), f"{n:,}", percent(n, records, digits=1)) for reason, n in found["reasons"].items()
    ]
    rows.append(("in all", f"{found['records']:,}", percent(found["records"], records, digits=1)))
    return Sheet("For people to look at", ("Reason", "Records", "%"), tuple(rows))


def _families(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Sheet]:
    """Yield for each ensemble a table with a row per family of attacks."""
    keys = ["attacks", "recognised", "asked", "detected", "queued", "flipped"]
    keys += ["lost_severity", "lost_severity_not_queued"]
    for name, values in found.items():
        families = values.get("families", {}).items()
        rows = tuple((family.replace("_", " "), *(_text(of.get(k)) for k in keys)) for family, of in families)
        if rows:
            yield Sheet(f"Attacks, {name}", ("", *(key.replace("_", " ") for key in keys)), rows)


def _flat(title: str, found: Mapping[str, Mapping[str, Any]]) -> Sheet:
    keys = sorted({key for values in found.values() for key, value in values.items() if _number(value)})
    rows = [(key.replace("_", " "), *(_text(values.get(key)) for values in found.values())) for key in keys]
    return Sheet(title, ("", *found), tuple(rows))


def _number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _text(value: Any) -> str:
    if not _number(value) or value is None:
        return UNDEFINED
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def count_hits(gathered: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Add ``cache_hits`` to each labeller's metrics of votes: how many answers were reused from the local store.

    The dictionary ``gathered`` is changed and returned.
    """
    from pipelines.store.answers import AnswerStore

    if "votes" in gathered:
        with AnswerStore.open(settings.answers_url) as answers:
            hits = answers.hits()
        for name, found in gathered["votes"].items():
            if name in hits:
                found["cache_hits"] = hits[name]
    return gathered


def published(settings: Settings, *, corpus: str, everything: bool) -> list[Sheet]:
    """Return the tables of votes from a corpus's published metrics: all (``everything``), or the summary tables."""
    with workspace(settings) as clone:
        gathered = count_hits(gather(clone.path, corpus), settings)
        return list(sheets(gathered, root=clone.path, everything=everything))
