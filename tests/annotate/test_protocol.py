"""The two shipped protocols are the papers', and a protocol that contradicts itself is refused."""

from pathlib import Path

import pytest
import yaml

from pipelines.annotate import manifest
from pipelines.core import taxonomy
from pipelines.core.config.params import load as load_params
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
PILOT = {"name": "pilot", "phase": "pilot", "size": 5, "overlap": 2, "annotators": 2, "batch_size": 5}
PILOT |= {"gold": True, "agreement": False, "seed": 1}


def described(tmp_path: Path, **changes: object) -> manifest.Protocol:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"name": "own", "title": "t", "source": "s", "rounds": [PILOT | changes]}))
    return manifest.protocol_file(path)


def test_figsim_is_held_as_the_paper_says() -> None:
    rounds = manifest.load_protocol("figsim").rounds
    assert [(r.name, r.size, r.overlap, r.annotators) for r in rounds] == [
        ("pilot-1", 50, 4, 4),
        ("pilot-2", 50, 4, 4),
        ("calibration", 50, 2, 2),
        ("large-scale", 900, 2, 2),
    ]
    assert sum(r.size for r in rounds) == 1050  # 3.1
    assert sum(r.size for r in rounds if r.agreement) == 900  # 3.3: N=900
    assert all(r.gold and r.splits is None for r in rounds)


def test_cradle_is_held_as_the_paper_says() -> None:
    *rounds, review = manifest.load_protocol("cradle").rounds
    assert [r.name for r in rounds] == [f"round-{n}" for n in range(1, 11)]
    doubles = [r for r in rounds if r.overlap == 2]
    assert [r.size for r in doubles] == [60, 60, 60]  # T10
    assert [r.name for r in rounds if r.agreement] == [r.name for r in doubles]
    assert all(r.overlap == 1 and r.annotators == 4 for r in rounds[3:])
    assert sum(r.size for r in rounds) == 420 + 600
    assert all(r.splits == ("dev", "test") for r in rounds)
    assert (review.draw, review.against) == ("disagreement", ("gpt", "claude"))
    assert (review.splits, review.overlap) == (("test",), 0)


def test_cradle_can_be_held_with_the_schemes_of_its_rounds() -> None:
    *rounds, review = manifest.load_protocol("cradle-schemes").rounds
    sizes = {r.name: (r.scheme, len(taxonomy.load(r.scheme or "cradle").category().labels), r.gold) for r in rounds[:4]}
    assert sizes == {
        "round-1": ("cradle_round_1", 6, False),
        "round-2": ("cradle_round_2", 7, False),
        "round-3": (None, 15, True),
        "again": (None, 15, True),
    }, "Table 10: 6, 7 and 15 labels; the first two rounds' posts get labels of the final scheme later"
    again = rounds[3]
    assert (again.draw, again.again, again.size) == ("again", ("round-1", "round-2"), 120)
    assert sum(r.size for r in rounds if r.gold) == 420 + 600
    assert review == manifest.load_protocol("cradle").rounds[-1] and review.marked


def test_what_ships_fits_the_parameters() -> None:
    params = load_params(ROOT)
    for corpus, name in params.round.protocol.items():
        for planned in manifest.load_protocol(name).rounds:
            assert planned.annotators <= len(params.round.annotators)
            assert set(planned.splits or ()) <= set(params.split[corpus].ratios)
            assert set(planned.against) <= set(params.labellers)
    for name in manifest.protocols():  # no two rounds draw alike
        seeds = [planned.seed for planned in manifest.load_protocol(name).rounds]
        assert len(set(seeds)) == len(seeds)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with refused("UnknownProtocol", match="cradle, cradle-schemes, figsim"):
        manifest.load_protocol("figsin")
    figsim = manifest.load_protocol("figsim")
    assert manifest.round_of(figsim, "calibration", corpus="memes").size == 50
    with refused("UnknownRound", match="pilot-1, pilot-2, calibration, large-scale"):
        manifest.round_of(figsim, "round-1", corpus="memes")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"annotators": 1}, "at least overlap"),
        ({"overlap": 0}, "at least overlap"),
        ({"overlap": 0, "annotators": 0}, "phase: review requires"),
        ({"phase": "review"}, "phase: review requires"),
        ({"overlap": 1, "agreement": True}, "agreement: true requires"),
        ({"draw": "disagreement"}, "draw: disagreement requires"),
        ({"against": ["gpt"]}, "draw: disagreement requires"),
        ({"size": 0}, "rounds.0.size"),
        ({"name": "../pilot"}, "rounds.0.name"),
        ({"splits": []}, "rounds.0.splits"),
        ({"overlaps": 2}, "rounds.0.overlaps"),
        ({"scheme": "cradle_round_1"}, "scheme of its own requires gold: false"),
        ({"draw": "again"}, "draw: again requires `again`"),
        ({"draw": "again", "again": ["later"]}, "names no earlier round"),
        ({"marked": True}, "marked: true requires draw: disagreement"),
    ],
)
def test_a_round_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    assert described(tmp_path).rounds[0].size == 5
    with refused("BadProtocol", match=said):
        described(tmp_path, **changes)


def test_a_file_that_does_not_hold_together_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "own.yaml", {"name": "own", "title": "t", "source": "s", "rounds": [PILOT, PILOT]}
    other = whole | {"name": "other", "rounds": [PILOT]}
    texts = {"ParserError": "a: [", "the same name": yaml.safe_dump(whole), "its name is other": yaml.safe_dump(other)}
    for said, text in texts.items():
        path.write_text(text)
        with refused("BadProtocol", match=said):
            manifest.protocol_file(path)
