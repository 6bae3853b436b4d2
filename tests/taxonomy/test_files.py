"""A third scheme is a data file and nothing else; a file that contradicts itself is refused."""

import json
import re

import pytest
import yaml

from pipelines.core import taxonomy
from pipelines.datasets.post import Post
from pipelines.llm.prompts import PromptExample, build, choose
from tests.refusals import refused

THIRD = """
name: weather
version: 1
title: How a diary speaks of the weather
item: diary entry
role: You read diary entries for people who study the weather.
purpose: The labels help to find old storms.
categories:
  wind:
    kind: multi
    none: calm
    task: Name the winds of the day.
    labels:
      - {name: storm_morning, code: W1, definition: It storms., attributes: {force: storm, time: am}, aliases: [gale]}
      - {name: storm_evening, code: W2, definition: It storms., attributes: {force: storm, time: pm}}
      - {name: breeze_morning, code: W3, definition: It blows., attributes: {force: breeze, time: am}}
      - {name: breeze_evening, code: W4, definition: It blows., attributes: {force: breeze, time: pm}}
      - {name: hearsay, code: W5, definition: It blew somewhere else., task: false}
      - {name: calm, code: W0, definition: No wind.}
    rules:
      - {name: storm_before_breeze, tier: improved, same: [time], of: force, keep: storm, drop: breeze}
    severity:
      - {where: {force: breeze}, is: 1}
      - {where: {force: storm}, is: 2}
    guidelines: [What a neighbour saw is hearsay.]
  sky:
    kind: single
    task: Say what the sky was like.
    labels:
      - {name: clear, code: S1, definition: No cloud.}
      - {name: haze, code: S2, definition: Thin cloud., task: false}
      - {name: fog, code: S3, definition: Cloud on the ground., task: false}
      - {name: dull, code: S4, definition: Any cloud.}
    merges:
      any_cloud: {labels: [haze, fog], into: dull}
    task_merge: any_cloud
"""
IMPROVED = taxonomy.tiers_of("improved")


@pytest.fixture
def weather(tmp_path):
    path = tmp_path / "weather.yaml"
    path.write_text(THIRD)
    return taxonomy.load_file(path)


def test_a_third_scheme_is_checked_without_code(weather):
    wind, sky = weather.category("wind"), weather.category("sky")
    checked = wind.check(["Gale", "breeze_morning", "breeze_evening", "calm", "W5"], mode="repair", tiers=IMPROVED)
    assert checked.labels == {"storm_morning", "breeze_evening"}
    assert checked.repairs == ("alias", "alias", "excluded", "exclusive", "storm_before_breeze")
    assert wind.check([], mode="repair", tiers=IMPROVED).labels == {"calm"}
    assert wind.severity({"breeze_evening", "storm_morning"}) == 2
    assert len(wind.valid_sets()) == 1 + (3 * 3 - 1)
    assert sky.check(["fog"], mode="repair", tiers=IMPROVED).labels == {"dull"}
    assert sky.names == ("clear", "dull")
    with refused("UnknownCategory"):
        weather.category()


def test_a_third_scheme_is_rendered_to_a_prompt_and_a_schema(weather):
    gold = {"a": frozenset({"calm"}), "b": frozenset({"storm_morning", "breeze_evening"}), "c": frozenset({"calm"})}
    chosen = choose({r: {"wind": labels} for r, labels in gold.items()}, count=2, seed=1)
    assert chosen[0] == "b"
    shown = [PromptExample(r, Post(r, "Monday", "Windy."), {"wind": tuple(gold[r]), "sky": ("dull",)}) for r in chosen]
    prompt = build(weather, keys=["wind", "sky"], system="open", examples=shown, secret=b"s")
    assert prompt.name == "weather-wind-sky"
    assert prompt.schema["properties"]["wind"]["items"]["enum"] == [*weather.category("wind").names]
    assert prompt.schema["properties"]["sky"] == {"type": "string", "enum": ["clear", "dull"]}
    system, (text,) = prompt.render(Post("d", "Tuesday", "Still air."), delimiter="0123456789abcdef")
    assert system.startswith(weather.role)
    assert "storm_morning, storm_evening: It storms." in text
    assert "hearsay:" not in text
    assert json.dumps({"wind": ["storm_morning", "breeze_evening"], "sky": "dull"}) in text
    assert text.endswith("0123456789abcdef\nTitle: Tuesday Text: Still air.\n0123456789abcdef")


def test_the_digest_is_that_of_the_file(weather, tmp_path):
    other = tmp_path / "weather2.yaml"
    other.write_text(THIRD + "\n")
    assert taxonomy.load_file(other).digest != weather.digest
    assert re.fullmatch("[0-9a-f]{64}", weather.digest)


def _wind(**changes):
    return lambda scheme: scheme["categories"]["wind"].update(changes)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda s: s.pop("role"), "role"),
        (lambda s: s.update(colour="blue"), "colour"),
        (lambda s: s.update(digest="0" * 64), "digest"),
        (_wind(key="gusts"), "not a key of a scheme's file"),
        (_wind(learnt={}), "not a key of a scheme's file"),
        (lambda s: s.update(display={"Row": ["tornado"]}), "tornado"),
        (_wind(none="lull"), "lull"),
        (_wind(merges={"m": {"labels": ["calm"], "into": "tornado"}}), "tornado"),
        (_wind(task_merge="m"), "task_merge names m"),
        (_wind(labels=[]), "labels"),
        (lambda s: s["categories"]["wind"]["labels"][0].update(aliases=["Calm!"]), "more than one label"),
        (lambda s: s["categories"]["wind"]["labels"][0].update(name="calm"), "more than one label|the same name"),
        (lambda s: s["categories"]["wind"]["rules"][0].update(tier="base"), "tier"),
        (lambda s: s["categories"]["wind"]["rules"][0].update(drop="storm"), "keep and drop must differ"),
        (lambda s: s["categories"]["wind"].update(recall_floors={"suicide": 0.9}), "there is no label suicide"),
        (lambda s: [x.update(task=False) for x in s["categories"]["wind"]["labels"]], "every label has task: false"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, break_it, says):
    scheme = yaml.safe_load(THIRD)
    break_it(scheme)
    path = tmp_path / "broken.yaml"
    path.write_text(yaml.safe_dump(scheme))
    with refused("BadScheme", match=says):
        taxonomy.load_file(path)


@pytest.mark.parametrize("content", ["a: [", "just words", ""])
def test_what_is_no_scheme_at_all_is_refused(tmp_path, content):
    path = tmp_path / "broken.yaml"
    path.write_text(content)
    with refused("BadScheme", match=r"broken\.yaml"):
        taxonomy.load_file(path)
    with refused("BadScheme", match="FileNotFoundError"):
        taxonomy.load_file(tmp_path / "absent.yaml")


def test_a_team_s_scheme_is_read_from_the_folder_of_the_parameters(tmp_path, monkeypatch):
    for path, version in (("clone/corpora/weather/scheme.yaml", 2), ("elsewhere/schemes/weather.yaml", 1)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(THIRD.replace("version: 1", f"version: {version}"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert taxonomy.load("weather", root=tmp_path / "clone").version == 2
    assert taxonomy.load("weather").version == 1
    assert "weather" in taxonomy.available(root=tmp_path / "clone")
    with refused("UnknownScheme"):
        taxonomy.load("weather", root=tmp_path)
