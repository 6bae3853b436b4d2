"""Write the model card: intended and prohibited uses, metrics and known failures (``card.json`` and ``card.md``).

Every number comes from ``evaluate.json`` (test split, gold, unanswered items counted as wrong) or, for alerts, from the
package's ``calibration.json`` (dev); nothing is measured here. ``card_failures`` turns the numbers into sentences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crisis_corpus.integrity import CARD, PAGE
from pipelines.metrics import recall_constraints
from pipelines.metrics.alerts import VERDICTS
from pipelines.packaging.card_failures import failures, interval, rate, share
from pipelines.packaging.model_described import OF_POSTS, Described

Json = dict[str, Any]

INTENDED = (
    "Research on how {things} describe crises: counting labels over a corpus, comparing corpora, and drawing samples "
    "for trained annotators.",
    "Ordering a queue that trained people read completely, so that items that may be urgent are read first.",
    "A baseline for other models of the same labels, on the same frozen test.",
)
PROHIBITED = (
    "Any action on a person without a human decision: no message, report, ban, removal or call that follows from an "
    "answer alone.",
    "Diagnosis, or any judgement of a person's health or risk, also by clinicians: it reads a single {thing} and was "
    "not evaluated on patients.",
    "Leaving a {thing} unread because no crisis was found: the model misses some, as the tables below show.",
    "Identifying or tracking authors, or joining its answers with data about persons.",
    "Decisions about insurance, work, credit, policing, schooling, benefits or housing, and advertising of any kind.",
    "Languages other than English, texts other than {things} from forums, and minors' private messages.",
    "Making or improving content that encourages self-harm, and training generators on what it labels.",
)
DECODED = {
    "set": "Labels are the most probable set that the scheme's rules allow. That aims at exact match, while the gate "
    "compares macro-F1.",
    "multi": "A label is given from the threshold with its best F1 on dev. That aims at the gate's metric, macro-F1.",
    "single": "The label is the most probable class. That aims at exact match, while the gate compares macro-F1.",
}
ALERTS = (
    "Beside its labels, an answer has alerts of labels that must not be missed. A recall floor sets the threshold of "
    "an alert and changes no label: queue a {thing} that has the alert or the label. A guarantee holds with "
    "{confidence:.0%} confidence for {things} like those of dev; without one, dev has too few positives for the floor."
)
# MLflow's limit for the description of a version is 5,000 characters.
LONGEST = 4_900
SHOWN = ("Measured", "Alerts", "Known failures", "Never for")
MORE = "\nThe whole card is `card.md` among the files of this version."
HELP = (
    "If you or someone you know is in danger, call your local emergency number.",
    "Helplines by country: https://findahelpline.com",
)


def write(pack: Path, *, described: Described, measured: Mapping[str, Any]) -> Json:
    """Write ``card.json`` and ``card.md`` into a model package; return the content of ``card.json``.

    Args:
        pack: the folder of the model package.
        described: the content of the package's ``model.json``.
        measured: ``Task`` of ``evaluate.json``, plus its ``sampling`` and ``split``.
    """
    path = pack / recall_constraints.FILE
    alerts = json.loads(path.read_bytes()).get("alerts", {}) if path.is_file() else {}
    made = card(described, measured=measured, alerts=alerts)
    (pack / CARD).write_text(json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    (pack / PAGE).write_text(page(made))
    return made


def card(described: Described, *, measured: Mapping[str, Any], alerts: Mapping[str, Json] | None = None) -> Json:
    """Return what ``card.json`` has: ``model``, ``data``, ``use``, ``measured``, ``alerts``, ``failures`` and ``help``.

    ``measured`` is as in :func:`write`. ``alerts`` has for each label the package's ``metrics.alerts.Alert``, and in
    ``test`` what was measured on the test split.
    """
    model = measured["models"][described.measured_as]
    thing = "post" if described.kind in OF_POSTS else "meme"
    words = {"things": f"{thing}s", "thing": thing}
    decoded = "set" if described.kind in OF_POSTS else measured["kind"]
    return {
        "name": described.name,
        "model": {
            **described.model_dump(include={"kind", "model", "subset", "base", "seed", "task"}),
            "labels": described.definitions,
        },
        "data": {
            **described.model_dump(include={"corpus", "data_commit", "split_digest", "votes_digest", "scheme"}),
            "scheme_digest": described.scheme_digest,
            "train": described.train.model_dump(),
        },
        "use": {
            "intended": [line.format(**words) for line in INTENDED],
            "prohibited": [line.format(**words) for line in PROHIBITED],
        },
        "measured": {
            "split": measured["split"],
            "items": measured["n"],
            "confidence": measured["sampling"]["confidence"],
            "runs": model["runs"],
            "figures": {name: _cell(cell) for name, cell in model["all"]["figures"].items()},
            "labels": {
                label: {
                    "items": measured["support"][label],
                    **{name: _cell(cell) for name, cell in model["all"]["labels"][label].items()},
                }
                for label in measured["labels"]
            },
            # the pack has one of several seeds
            "this_seed": model["by_seed"].get(str(described.seed), {}).get("all", {}).get("figures"),
            "majority": measured["baselines"].get("majority", {}).get("figures"),
            "outcomes": model["outcomes"],
            "decoding": DECODED[decoded],
        },
        "alerts": {
            label: dict(one) | {"test": _on_test(model["floors"].get(label))}
            for label, one in sorted((alerts or {}).items())
        },
        "failures": list(failures(model, measured=measured, thing=thing)),
        "help": list(HELP),
    }


def page(made: Json) -> str:
    """Format the content of ``card.json`` (``made``) as Markdown for ``card.md``."""
    return (
        "\n".join([*_head(made), *_use(made["use"]), *_measured(made["measured"]), *_alerts(made), *_rest(made)]) + "\n"
    )


def description(page: str) -> str:
    """Return the part of ``card.md`` that MLflow shows on a version's page, most important sections first.

    It is cut at the end of a line, because MLflow limits its length.
    """
    head, *sections = page.strip().split("\n## ")
    of = {section.partition("\n")[0]: section for section in sections}
    chosen = [head, *(f"## {of[title]}" for title in SHOWN if title in of)]
    kept, length = list[str](), len(MORE)
    for line in "\n".join(chosen).splitlines():
        length += len(line) + 1
        if length > LONGEST:
            break
        kept.append(line)
    return "\n".join([*kept, MORE])


def _head(made: Json) -> Iterator[str]:
    model, data = made["model"], made["data"]
    yield f"# {made['name']}"
    yield ""
    learnt = f", tuned on the labels '{model['subset']}'" if model["subset"] else ""
    yield (
        f"`{model['model']}` ({model['kind']}, base `{model['base']}`{learnt}, seed {model['seed']}) predicts "
        f"`{model['task']}` of the scheme `{data['scheme']}`."
    )
    yield ""
    yield f"- Corpus `{data['corpus']}` at commit `{data['data_commit']}`; {data['train']['records']} training records"
    yield f"- Split `{data['split_digest'][:16]}`, scheme `{data['scheme_digest'][:16]}`"
    if data["votes_digest"]:
        yield f"- Silver `{data['votes_digest'][:16]}`: its training labels are votes of automatic labellers"
    yield "- Input in English; account names, addresses and numbers are scrubbed before the model reads it"


def _use(use: Json) -> Iterator[str]:
    for title, key in (("For", "intended"), ("Never for", "prohibited")):
        yield from ("", f"## {title}", "", *(f"- {line}" for line in use[key]))


def _measured(found: Json) -> Iterator[str]:
    yield from ("", "## Measured", "")
    several = f", mean of {found['runs']} runs" if found["runs"] > 1 else ""
    drawn = "near-duplicate groups and runs" if several else "near-duplicate groups (one run: not over seeds)"
    yield (
        f"On the {found['items']} items of `{found['split']}` that people labelled{several}; a missing answer counts "
        f"as wrong. Brackets: {found['confidence']:.0%} BCa bootstrap interval over {drawn}. {found['decoding']}"
    )
    yield from ("", "| figure | value | this seed | majority |", "|---|---|---|---|")
    for name, cell in found["figures"].items():
        alone, plain = ((found[key] or {}).get(name) for key in ("this_seed", "majority"))
        yield f"| {name} | {interval(cell)} | {share(alone)} | {share(plain)} |"
    yield from ("", "| label | items | F1 | precision | recall |", "|---|---|---|---|---|")
    for label, row in found["labels"].items():
        cells = " | ".join(interval(row[name]) for name in ("f1", "precision", "recall"))
        yield f"| {label} | {row['items']} | {cells} |"


def _alerts(made: Json) -> Iterator[str]:
    if not made["alerts"]:
        return
    thing = "post" if made["model"]["kind"] in OF_POSTS else "meme"
    confidence = max(one["confidence"] for one in made["alerts"].values())
    yield from ("", "## Alerts", "", ALERTS.format(thing=thing, things=f"{thing}s", confidence=confidence), "")
    yield "| label | floor | positives of dev | guaranteed recall | recall on test | alert rate on test | on test |"
    yield "|---|---|---|---|---|---|---|"
    for label, one in made["alerts"].items():
        test = one["test"] or {"recall": None, "alert_rate": None, "verdict": None}
        cells = [share(one["guaranteed_recall"]) + ("" if one["guarantee"] else ", without guarantee of the floor")]
        cells += ["–" if test[name] is None else rate(test[name]) for name in ("recall", "alert_rate")]
        cells += [VERDICTS[test["verdict"]]]
        yield f"| {label} | {one['floor']} | {one['positives']} | {' | '.join(cells)} |"


def _on_test(floor: Mapping[str, Any] | None) -> Json | None:
    alert = floor and floor["alert"]
    return {name: alert[name] for name in ("recall", "alert_rate", "verdict")} if alert else None


def _rest(made: Json) -> Iterator[str]:
    sections: Sequence[tuple[str, list[str]]] = (
        ("Known failures", made["failures"]),
        ("Labels", [f"`{label}`: {definition}" for label, definition in made["model"]["labels"].items()]),
        ("Help", made["help"]),
    )
    for title, lines in sections:
        yield from ("", f"## {title}", "", *(f"- {line}" for line in lines))


def _cell(cell: Mapping[str, Any]) -> Json:
    return {name: cell[name] for name in ("mean", "low", "high")}
