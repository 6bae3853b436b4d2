"""The stage: which answers are compared, what is pooled, and what is said where nothing can be said."""

import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score

from pipelines.annotate import agreement, manifest
from pipelines.annotate.manifest import RoundManifest
from pipelines.core.config.params import Params, load
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.scheme import normal
from pipelines.evaluate.report import agreement_tables
from tests.annotate.round_manifest import manifest_of
from tests.contexts import context_of
from tests.small_corpus import full, write_table

ROOT = Path(__file__).parents[2]
FIGSIM, CRADLE = load_scheme("figsim"), load_scheme("cradle")
DEGREES = ["None", "Wish to be dead", "Suicide ideation", "Suicide planning", "Suicide attempts", "Suicide death"]
Given = Mapping[str, Mapping[str, Sequence[str] | None]]
"""What each annotator said of each record; ``None`` is a skip."""


@pytest.fixture
def params() -> Params:
    plain = load(ROOT)
    return plain.model_copy(update={"agreement": plain.agreement.model_copy(update={"resamples": 60})})


def round_of(name: str, *, day: int = 1, corpus: str = "memes", counts: bool = True) -> RoundManifest:
    opened = datetime(2025, 10, 1, tzinfo=UTC) + timedelta(days=day)
    scheme = "figsim" if corpus == "memes" else "cradle"
    return manifest_of(name, corpus=corpus, phase="large_scale", scheme=scheme, agreement=counts, opened=opened)


def rows_of(name: str, given: Given, *, category: str, batch: int = 0) -> list[dict[str, Any]]:
    return [
        {
            **{"record_id": record, "image": 0, "annotator": annotator, "category": category, "round": name},
            **{"batch": batch, "guideline": "0" * 16, "outcome": "skipped" if labels is None else "answered"},
            **{"labels": None if labels is None else sorted(labels), "seconds": None, "note": None},
            "answered": datetime(2025, 10, 3, tzinfo=UTC),
        }
        for record, by in given.items()
        for annotator, labels in by.items()
    ]


def put(root: Path, round_: RoundManifest, rows: list[dict[str, Any]]) -> None:
    folder = manifest.folder(root, round_.corpus, round_.round)
    manifest.write(round_, folder / "manifest.yaml")
    write_table(folder / "annotations.parquet", rows, name="annotations")


def pairs(answers: Sequence[tuple[Sequence[str] | None, Sequence[str] | None]], *, first: int = 0) -> Given:
    return {f"r{first + i:03}": {"annotator-1": one, "annotator-2": other} for i, (one, other) in enumerate(answers)}


def drawn(items: int, *, seed: int = 1, errors: float = 0.3) -> list[tuple[list[str], list[str]]]:
    rng = random.Random(f"{seed}/answers")
    found = []
    for _ in range(items):
        true = rng.choice(DEGREES)
        found.append(tuple([rng.choice(DEGREES) if rng.random() < errors else true] for _ in range(2)))
    return found  # type: ignore[return-value]


def read(root: Path, corpus: str = "memes") -> dict[str, Any]:
    return json.loads((root / "metrics" / corpus / "agreement.json").read_text())


def test_a_corpus_without_rounds_or_pulls_has_no_figures_and_no_error(tmp_path: Path, params: Params) -> None:
    assert agreement.run(context_of("memes", params=params, root=tmp_path)) == {"rounds": {}}
    assert read(tmp_path) == {"rounds": {}}
    assert (tmp_path / "snapshot/memes/agreement/agreement.png").read_bytes().startswith(b"\x89PNG")
    manifest.write(round_of("pilot-1"), manifest.folder(tmp_path, "memes", "pilot-1") / "manifest.yaml")
    assert agreement.run(context_of("memes", params=params, root=tmp_path)) == {"rounds": {}}


def test_kappa_is_scikit_learns_with_an_interval_and_its_reading(tmp_path: Path, params: Params) -> None:
    answers = drawn(60)
    put(tmp_path, round_of("calibration"), rows_of("calibration", pairs(answers), category="severity"))
    told = agreement.run(context_of("memes", params=params, root=tmp_path))
    metrics = read(tmp_path)
    found = metrics["rounds"]["calibration"]["categories"]["severity"]
    expected = cohen_kappa_score([a[0][0] for a in answers], [a[1][0] for a in answers])
    assert found["kappa"]["value"] == pytest.approx(expected, abs=1e-6)
    assert found["kappa"]["low"] < expected < found["kappa"]["high"]
    assert (found["kappa"]["word"], found["items"], found["distance"]) == ("moderate", 60, "ordinal")
    interval = {"method": "percentile bootstrap", "unit": "near-duplicate group", "confidence": 0.95, "resamples": 60}
    assert metrics["interval"] == interval
    assert told["overall"]["alpha"]["severity"] == metrics["overall"]["categories"]["severity"]["alpha"]["value"]
    text = agreement_tables.summary(tmp_path, "memes", name="calibration")
    assert "95% interval (percentile bootstrap, by near-duplicate group)" in text
    assert "| Category | Items | α |" in text


def test_attempt_and_death_are_two_answers_but_one_degree() -> None:
    answers = [(["Suicide attempts"], ["Suicide death"])] * 4 + [(["None"], ["None"])] * 4
    found = figures("severity", pairs(answers))
    assert found["observed"]["value"] == 0.5
    assert found["kappa"]["value"] < 1
    assert found["weighted_kappa"]["value"] == 1
    assert found["alpha"]["value"] == 1


def figures(category: str, given: Given, *, scheme: Any = FIGSIM, corpus: str = "memes") -> dict[str, Any]:
    rows = rows_of("round-1", given, category=category)
    settings = load(ROOT).agreement.model_copy(update={"resamples": 40})
    metrics = agreement.measure([(round_of("round-1", corpus=corpus), rows)], scheme=scheme, settings=settings)
    return metrics["rounds"]["round-1"]["categories"][category]


def test_none_of_a_multi_category_is_the_empty_set_and_no_label_of_the_mean() -> None:
    answers: list[tuple[list[str], list[str]]] = [
        (["Metaphor"], ["Metaphor"]),
        (["Metaphor", "Irony/sarcasm"], ["Metaphor"]),
        (["Irony/sarcasm"], ["Irony/sarcasm"]),
        ([], []),
        (["None"], []),
        ([], ["Irony/sarcasm"]),
    ]
    found = figures("figurative", pairs(answers))

    assert set(found["labels"]) == {"Metaphor", "Pun/Double meaning", "Irony/sarcasm"}
    irony = cohen_kappa_score([0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 1])
    assert found["labels"]["Irony/sarcasm"]["kappa"]["value"] == pytest.approx(irony, abs=1e-6)
    assert found["labels"]["Irony/sarcasm"]["items"] == 3
    # no annotator used the pun: undefined, and the mean is over the two others
    assert found["labels"]["Pun/Double meaning"]["kappa"] == {"value": None, "low": None, "high": None}
    assert found["labels"]["Pun/Double meaning"]["ac1"]["value"] is None
    assert found["kappa"]["value"] == pytest.approx((1 + irony) / 2, abs=1e-6)
    assert (found["labels_used"]["kappa"], found["labels_offered"]) == (2, 3)
    assert found["jaccard"]["value"] == pytest.approx((1 + 0.5 + 1 + 1 + 1 + 0) / 6, abs=1e-6)
    assert found["observed"]["value"] == pytest.approx(4 / 6, abs=1e-6)
    assert found["distance"] == "masi"


def test_only_items_with_two_answers_count_and_the_others_are_distinguished() -> None:
    given = {
        **pairs([(["text"], ["text"]), (["image"], ["text"]), (["text"], None), (None, None)]),
        "r900": {"annotator-1": ["text"]},
        "r901": {"annotator-1": ["text"], "annotator-2": ["a label of another scheme"]},
    }
    found = figures("modality", given)
    assert found["items"] == 2
    assert found["observed"]["value"] == 0.5
    assert found["left_out"] == {"outside_scheme": 1, "single": 1, "skipped": 2}


def test_a_round_of_single_annotation_is_listed_without_figures(tmp_path: Path, params: Params) -> None:
    given = {f"r{i}": {f"annotator-{1 + i % 2}": ["text"]} for i in range(6)}
    put(tmp_path, round_of("round-4", counts=False), rows_of("round-4", given, category="modality"))
    assert agreement.run(context_of("memes", params=params, root=tmp_path))["rounds"]["round-4"]["items"] == 0
    found = read(tmp_path)["rounds"]["round-4"]
    assert found["categories"]["modality"]["kappa"] == {"value": None, "low": None, "high": None}
    assert found["sufficient"] is None


def test_the_published_figures_are_over_the_rounds_that_count(tmp_path: Path, params: Params) -> None:
    alike, unlike = [(["text"], ["text"]), (["image"], ["image"])] * 5, [(["text"], ["image"])] * 10
    put(tmp_path, round_of("pilot-1", counts=False), rows_of("pilot-1", pairs(unlike), category="modality"))
    for day, name in enumerate(("large-scale-a", "large-scale-b"), start=2):
        rows = rows_of(name, pairs(alike, first=day * 100), category="modality")
        put(tmp_path, round_of(name, day=day), rows)
    told = agreement.run(context_of("memes", params=params, root=tmp_path))
    found = read(tmp_path)
    assert found["overall"]["rounds"] == ["large-scale-a", "large-scale-b"]
    assert found["overall"]["categories"]["modality"]["items"] == 20
    assert told["overall"]["kappa"]["modality"] == 1
    assert told["rounds"]["pilot-1"]["kappa"]["modality"] == 0
    assert [found["rounds"][name]["order"] for name in ("pilot-1", "large-scale-a", "large-scale-b")] == [0, 1, 2]


def test_batches_have_figures_of_their_own_and_enough_is_asked_of_every_defined_kappa(
    tmp_path: Path, params: Params
) -> None:
    good = rows_of("large-scale", pairs([(["text"], ["text"]), (["image"], ["image"])] * 3), category="modality")
    good += rows_of("large-scale", pairs([(["None"], ["None"])] * 5), category="severity")  # undefined: no obstacle
    bad = pairs([(["text"], ["image"]), (["image"], ["image"])] * 3, first=50)
    put(tmp_path, round_of("large-scale"), [*good, *rows_of("large-scale", bad, category="modality", batch=1)])
    agreement.run(context_of("memes", params=params, root=tmp_path))
    batches = read(tmp_path)["rounds"]["large-scale"]["batches"]
    assert batches["0"]["categories"]["modality"]["kappa"]["value"] == 1
    assert batches["1"]["categories"]["modality"]["kappa"]["value"] == 0
    assert (batches["0"]["sufficient"], batches["1"]["sufficient"]) == (True, False)


def test_the_same_answers_give_the_same_bytes_whatever_their_order(tmp_path: Path, params: Params) -> None:
    rows = rows_of("large-scale", pairs(drawn(30)), category="severity")
    written = []
    for i, order in enumerate((rows, rows[::-1])):
        root = tmp_path / str(i)
        put(root, round_of("large-scale"), order)
        agreement.run(context_of("memes", params=params, root=root))
        files = ("metrics/memes/agreement.json", "snapshot/memes/agreement/agreement.png")
        written.append([(root / name).read_bytes() for name in files])
        shuffled = agreement.measure([(round_of("large-scale"), order)], scheme=FIGSIM, settings=params.agreement)
        assert json.loads(json.dumps(shuffled)) == read(root)
    assert written[0] == written[1]
    assert b"r001" not in written[0][0] and b"annotator-1" not in written[0][0], "no record and no annotator"


def test_near_duplicates_are_drawn_together_so_that_copies_narrow_no_interval(tmp_path: Path, params: Params) -> None:
    # every item has three copies with the same answers
    copied = {f"{record}-{n}": by for record, by in pairs(drawn(30)).items() for n in range(4)}
    rows = rows_of("calibration", copied, category="severity")
    put(tmp_path, round_of("calibration"), rows)
    widths = []
    for known in (False, True):
        if known:
            clusters = [full("clusters", record_id=r, image=0, cluster=r[:4], keeper=r[-1] == "0") for r in copied]
            write_table(tmp_path / "snapshot/memes/dedupe/clusters.parquet", clusters, name="clusters")
        agreement.run(context_of("memes", params=params, root=tmp_path))
        figures = read(tmp_path)["rounds"]["calibration"]["categories"]["severity"]
        assert (figures["items"], figures["groups"]) == (120, 30 if known else 120)
        widths.append(figures["alpha"]["high"] - figures["alpha"]["low"])
    assert widths[1] > 1.5 * widths[0], "four copies say no more than one item"


def test_rounds_under_their_own_schemes_reproduce_table_10(tmp_path: Path, params: Params) -> None:
    """CRADLE T10: 6, 7 and 15 labels; which post has which of a label's four cases is made up here."""
    known = json.loads((ROOT / "tests" / "known_answers.json").read_text())["cradle_table10"]
    names = {"round-1": "cradle_round_1", "round-2": "cradle_round_2", "round-3": "cradle"}
    for day, (name, scheme) in enumerate(names.items(), start=1):
        category = load_scheme(scheme).category()
        said: dict[str, list[set[str]]] = {who: [set() for _ in range(60)] for who in ("annotator-1", "annotator-2")}
        for label, row in known[name.replace("-", "_")]["rows"].items():
            both, first, second, neither = row["table"]
            assert both + first + second + neither == 60
            for i in range(both + first + second):
                for who, gave in (("annotator-1", i < both + first), ("annotator-2", i < both or i >= both + first)):
                    if gave:
                        said[who][i].add(category.spellings[normal(label)])
        held = round_of(name, day=day, corpus="posts").model_copy(update={"scheme": scheme})
        given = {f"{i:032x}": {who: sorted(sets[i]) for who, sets in said.items()} for i in range(60)}
        put(tmp_path, held, rows_of(name, given, category="labels"))
    agreement.run(context_of("posts", params=params, root=tmp_path))
    found = json.loads((tmp_path / "metrics" / "posts" / "agreement.json").read_text())
    for name, scheme in names.items():
        own, printed = found["rounds"][name]["categories"]["labels"], known[name.replace("-", "_")]
        assert len(own["labels"]) == {"round-1": 6, "round-2": 7, "round-3": 15}[name] == len(printed["rows"])
        spelt = {normal(label): row for label, row in own["labels"].items()}
        category = load_scheme(scheme).category()
        for label, row in printed["rows"].items():
            ours = spelt[normal(category.spellings[normal(label)])]
            for figure in ("kappa", "ac1"):
                assert ours[figure]["value"] == pytest.approx(row[figure], abs=6e-5), (name, label, figure)
        for figure in ("kappa", "ac1"):
            assert own[figure]["value"] == pytest.approx(printed["mean"][figure], abs=2e-4)
    assert found["overall"]["rounds"] == ["round-3"], "labels of other schemes are not pooled"
    assert found["rounds"]["round-1"]["scheme"] == "cradle_round_1"
    sheets = {sheet.title: sheet for sheet in agreement_tables.paper_tables("cradle", ours=found, root=ROOT)}
    shown = next(sheet for title, sheet in sheets.items() if "round-1" in title)
    [ours] = [row for row in shown.rows if row[:2] == ("suicideideation", "ours")]
    assert ours[2].startswith("0.64 [") and ours[4] == "18"
