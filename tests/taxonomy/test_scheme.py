"""The two papers' schemes have the papers' strings and sizes."""

from pipelines.core import taxonomy
from tests.refusals import refused

CRADLE = taxonomy.load("cradle")
FIGSIM = taxonomy.load("figsim")


def test_cradle_has_fifteen_labels_of_eight_types_and_three_times():
    category = CRADLE.category()
    assert category.key == "labels"
    assert len(category.names) == 15
    types = {"self_harm", "suicide_ideation", "rape", "sexual_harassment", "domestic_violence", "child_abuse"}
    assert {a["type"] for a in category.attributes.values()} == {"no_crisis", *types}
    assert {a["time"] for a in category.attributes.values()} == {"ongoing", "past", "no_crisis"}
    for name in category.names:
        time = category.attributes[name]["time"]
        assert name.endswith(time)


def test_cradle_tables_have_the_papers_rows_and_every_label_once():
    rows = ["No crisis", "Self-harm", "SI (passive)", "Rape", "SI (active)"]
    assert list(CRADLE.display) == [*rows, "Sexual har.", "Domestic viol.", "Child abuse"]
    shown = [name for row in CRADLE.display.values() for name in row]
    assert sorted(shown) == sorted(CRADLE.category().names)


def test_severity_orders_cradles_label_sets():
    severity = CRADLE.category().severity
    assert severity(frozenset()) == severity({"no_crisis"}) == 0
    assert severity({"rape_past", "selfharm_past"}) == severity({"suicideideation_active_past"}) == 1
    assert severity({"rape_past", "suicideideation_passive_ongoing"}) == 2
    assert severity({"suicideideation_active_ongoing"}) == 3


def test_figsim_has_five_categories_of_the_papers_task_sizes():
    sizes = {"figurative": 3, "severity": 5, "related": 4, "modality": 3, "context": 2}
    assert {key: len(c.names) for key, c in FIGSIM.categories.items()} == sizes
    severity = FIGSIM.category("severity")
    assert severity.ordinal
    assert [severity.severity({name}) for name in severity.names] == [0, 1, 2, 3, 4]
    assert severity.severity({"Suicide death"}) == 4


def test_figsim_codes_are_the_papers():
    codes = {x.code for c in FIGSIM.categories.values() for x in c.labels}
    numbered = {"F": 4, "SS": 6, "SR": 6, "M": 3, "C": 2}
    assert codes == {f"{p}{i}" for p, n in numbered.items() for i in range(1, n + 1)} | {"SS4+SS5"}


def test_a_scheme_of_several_categories_has_none_by_default():
    with refused("UnknownCategory", match="figurative, severity"):
        FIGSIM.category()
    with refused("UnknownCategory"):
        CRADLE.category("severity")


def test_schemes_are_found_by_name():
    assert taxonomy.available() == [
        "communities", "cradle", "cradle_round_1", "cradle_round_2", "cssrs", "figsim",
    ]  # fmt: skip
    assert taxonomy.load("cradle") is CRADLE
    for name in ("none", "../cradle", ""):
        with refused("UnknownScheme", match="communities, cradle, cradle_round_1, cradle_round_2, cssrs, figsim"):
            taxonomy.load(name)
