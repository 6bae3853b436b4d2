"""The papers' schemes have their strings and sizes; repair makes valid sets, and strict names what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import taxonomy
from tests.refusals import refused

SCHEME = taxonomy.load("cradle")
CRADLE = SCHEME.category()
FIGSIM = taxonomy.load("figsim")
CATEGORIES = [CRADLE, *FIGSIM.categories.values()]
PAPER, IMPROVED = taxonomy.tiers_of("paper"), taxonomy.tiers_of("improved")
TIERS = [frozenset(), PAPER, IMPROVED, IMPROVED | {"soft"}]
ACTIVE = "suicideideation_active_past"


@st.composite
def cases(draw):
    """A category, tiers, and strings: labels, other spellings of them and, at times, something unknown."""
    category = draw(st.sampled_from(CATEGORIES))
    spellings = [s for x in category.labels for s in (x.name, x.code, x.name.upper(), f" {x.name} ", *x.aliases)]
    known = st.sampled_from([x.name for x in category.labels])
    values = draw(st.lists(known | known | st.sampled_from(spellings) | st.just("emotional_distress"), max_size=6))
    return category, draw(st.sampled_from(TIERS)), values


@given(cases(), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_what_is_given_changes_nothing(case, rng, task):
    category, tiers, values = case
    shuffled = rng.sample(values, len(values))
    for mode in ("strict", "repair"):
        first = category.check(values, mode=mode, tiers=tiers, task=task)
        assert category.check(shuffled, mode=mode, tiers=tiers, task=task) == first


@given(cases(), st.booleans())
def test_a_repaired_set_is_valid_and_needs_no_second_repair(case, task):
    category, tiers, values = case
    repaired = category.check(values, mode="repair", tiers=tiers, task=task)
    assert repaired.labels <= set(category.names if task else category.attributes)
    again = category.check(repaired.labels, mode="repair", tiers=tiers, task=task)
    assert again.labels == repaired.labels or repaired.unknown
    if not repaired.violations:
        assert again.repairs == again.violations == ()
        strict = category.check(repaired.labels, mode="strict", tiers=tiers, task=task)
        assert (strict.labels, strict.violations) == (repaired.labels, ())


@given(cases())
def test_strict_finds_fault_exactly_where_repair_has_work_and_then_leaves_all_as_it_was(case):
    category, tiers, values = case
    strict = category.check(values, mode="strict", tiers=tiers)
    repair = category.check(values, mode="repair", tiers=tiers)
    assert strict.repairs == ()
    assert strict.violations == tuple(sorted(repair.repairs + repair.violations))
    assert strict.unknown == repair.unknown == repair.violations.count("unknown_label")
    assert strict.labels == (frozenset(values) if strict.violations else repair.labels)


@given(cases())
def test_no_repair_takes_a_crisis_away_or_loses_severity_but_the_soft_one(case):
    category, tiers, values = case
    known = {x for v in values if (x := category.spellings.get(taxonomy.scheme.normal(v))) is not None}
    repaired = category.check(values, mode="repair", tiers=tiers - {"soft"})
    if not repaired.unknown:
        assert category.severity(repaired.labels) == category.severity(known)


@given(cases())
def test_what_the_scheme_does_not_know_is_never_made_a_label(case):
    category, tiers, values = case
    for mode in ("strict", "repair"):
        checked = category.check([*values, "emotional_distress"], mode=mode, tiers=tiers)
        assert "unknown_label" in checked.violations
        assert checked.unknown == 1 + values.count("emotional_distress")
    assert category.check(["emotional_distress"], mode="repair", tiers=tiers).labels == frozenset()


@pytest.mark.parametrize(
    ("values", "labels", "repairs"),
    [
        ("", "no_crisis", "empty"),
        ("no_crisis rape_past", "rape_past", "exclusive"),
        ("rape_past rape_past Rape_Past", "rape_past", "alias duplicate duplicate"),
        ("selfharm_ongoing selfharm_past", "selfharm_ongoing", "ongoing_before_past"),
        (f"{ACTIVE} suicideideation_passive_past", ACTIVE, "active_before_passive"),
        # CRADLE's third example: at different times both may stand
        (f"{ACTIVE} suicideideation_passive_ongoing", f"{ACTIVE} suicideideation_passive_ongoing", ""),
        # nothing hard forbids rape and sexual harassment together
        ("rape_past sexualharassment_past", "rape_past sexualharassment_past", ""),
        ("rape_past selfharm_past", "rape_past selfharm_past", ""),
    ],
)
def test_the_hard_rules_of_cradle(values, labels, repairs):
    checked = CRADLE.check(values.split(), mode="repair", tiers=IMPROVED)
    found = (checked.labels, checked.repairs, checked.violations)
    assert found == (frozenset(labels.split()), tuple(repairs.split()), ())


def test_paper_mode_leaves_what_rules_d_and_e_would_change():
    values = ["selfharm_ongoing", "selfharm_past", "suicideideation_active_past", "suicideideation_passive_past"]
    assert CRADLE.check(values, mode="repair", tiers=PAPER) == taxonomy.Checked(frozenset(values))
    assert CRADLE.check(["no_crisis", *values], mode="repair", tiers=PAPER).repairs == ("exclusive",)


def test_the_soft_rule_applies_only_when_asked_for_and_within_one_time():
    values = ["rape_past", "sexualharassment_past", "sexualharassment_ongoing"]
    soft = CRADLE.check(values[:2], mode="repair", tiers={"base", "soft"})
    assert (soft.labels, soft.repairs) == (frozenset({"rape_past"}), ("rape_before_harassment",))
    apart = CRADLE.check([values[0], values[2]], mode="repair", tiers={"base", "soft"})
    assert apart.repairs == ()


@pytest.mark.parametrize(
    "spelling",
    [
        "childabuseendangerment_past",  # Tables 10 and 11
        "childabuse_past",  # Table 13
        "child_abuse_endangerment_past",  # the prose of both prompts
        "Child Abuse / Endangerment past",
    ],
)
def test_the_papers_own_spellings_are_aliases(spelling):
    checked = CRADLE.check([spelling], mode="repair", tiers=IMPROVED)
    assert (checked.labels, checked.repairs) == (frozenset({"childabuse_endangerment_past"}), ("alias",))
    assert CRADLE.check([spelling], mode="strict", tiers=IMPROVED).violations == ("alias",)


def test_a_spelling_without_its_time_is_not_guessed():
    assert CRADLE.check(["child_abuse_endangerment"], mode="repair", tiers=IMPROVED).unknown == 1


def test_valid_sets_are_those_of_the_size_that_is_asked_for():
    every = CRADLE.valid_sets()
    single = CRADLE.valid_sets(most=1)
    assert single == [labels for labels in every if len(labels) <= 1]
    every.clear()
    assert CRADLE.valid_sets() != []


def test_valid_sets_are_those_that_strict_accepts():
    sets = CRADLE.valid_sets()
    assert len(sets) == len(set(sets)) == 837
    assert max(map(len, sets)) == 4
    assert frozenset() not in sets
    assert [s for s in sets if "no_crisis" in s] == [frozenset({"no_crisis"})]
    sizes = {"figurative": 8, "severity": 5, "related": 16, "modality": 3, "context": 2}
    assert {c.key: len(c.valid_sets()) for c in FIGSIM.categories.values()} == sizes


def test_figsim_attempt_and_death_are_one_class():
    severity = FIGSIM.category("severity")
    both = frozenset({"Suicide attempts", "Suicide death"})
    assert severity.merge(both, merge="attempt_or_death") == {"Suicide attempt/death"}
    assert severity.merge(frozenset({"None"}), merge="attempt_or_death") == {"None"}
    merged = severity.check(["SS5"], mode="repair", tiers=IMPROVED)
    assert (merged.labels, merged.repairs) == (frozenset({"Suicide attempt/death"}), ("alias", "attempt_or_death"))
    assert severity.check(["Suicide death"], mode="strict", tiers=IMPROVED).violations == ("attempt_or_death",)
    assert severity.check(["Suicide death"], mode="strict", tiers=IMPROVED, task=False).violations == ()
    with pytest.raises(KeyError):
        severity.merge(both, merge="no_such_merge")


def test_figsim_third_person_is_for_annotators_only_and_none_is_the_empty_set():
    related = FIGSIM.category("related")
    checked = related.check(["Third-person description", "Harmful factors"], mode="repair", tiers=IMPROVED)
    assert (checked.labels, checked.repairs) == (frozenset({"Harmful factors"}), ("excluded",))
    annotated = related.check(["Third-person description"], mode="strict", tiers=IMPROVED, task=False)
    assert annotated == taxonomy.Checked(frozenset({"Third-person description"}))
    assert related.check(["None"], mode="strict", tiers=IMPROVED) == taxonomy.Checked(frozenset())
    assert related.check(["None", "SR4"], mode="repair", tiers=IMPROVED).repairs == ("alias", "exclusive")


def test_one_of_several_is_not_chosen_for_a_single_label_category():
    severity, modality = FIGSIM.category("severity"), FIGSIM.category("modality")
    checked = severity.check(["None", "Suicide ideation"], mode="repair", tiers=IMPROVED)
    assert checked.violations == ("several",)
    assert severity.check([], mode="repair", tiers=IMPROVED).labels == {"None"}
    assert modality.check([], mode="repair", tiers=IMPROVED).violations == ("empty",)


def test_cradle_has_fifteen_labels_of_eight_types_and_three_times():
    assert (CRADLE.key, len(CRADLE.names)) == ("labels", 15)
    types = {"self_harm", "suicide_ideation", "rape", "sexual_harassment", "domestic_violence", "child_abuse"}
    assert {a["type"] for a in CRADLE.attributes.values()} == {"no_crisis", *types}
    assert {a["time"] for a in CRADLE.attributes.values()} == {"ongoing", "past", "no_crisis"}
    assert all(name.endswith(CRADLE.attributes[name]["time"]) for name in CRADLE.names)


def test_cradle_tables_have_the_papers_rows_and_every_label_once():
    rows = ["No crisis", "Self-harm", "SI (passive)", "Rape", "SI (active)"]
    assert list(SCHEME.display) == [*rows, "Sexual har.", "Domestic viol.", "Child abuse"]
    shown = [name for row in SCHEME.display.values() for name in row]
    assert sorted(shown) == sorted(CRADLE.names)


def test_severity_orders_cradles_label_sets():
    severity = CRADLE.severity
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
        SCHEME.category("severity")


def test_schemes_are_found_by_name():
    assert taxonomy.available() == [
        "communities", "cradle", "cradle_round_1", "cradle_round_2", "cssrs", "figsim",
    ]  # fmt: skip
    assert taxonomy.load("cradle") is SCHEME
    for name in ("none", "../cradle", ""):
        with refused("UnknownScheme", match="communities, cradle, cradle_round_1, cradle_round_2, cssrs, figsim"):
            taxonomy.load(name)
