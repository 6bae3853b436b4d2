"""A prompt contains the whole scheme and keeps the post apart from it; no unscrubbed personal data are sent."""

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import taxonomy
from pipelines.datasets.post import Post
from pipelines.label.attacks import attacks
from pipelines.llm.prompts import RESERVED, PromptExample, build, choose, clean, delimiter, register
from tests import mlflow_database
from tests.refusals import refused

SECRET = b"a project's secret"
CRADLE = taxonomy.load("cradle")
FIGSIM = taxonomy.load("figsim")
CATEGORY = CRADLE.category()
MARKS = "<|im_start|> <|eot_id|> <｜User｜> [INST] [/INST] <<SYS>> <s> </s> <start_of_turn> <end_of_turn>"
TOKENS = [*f"{MARKS} <think> </think> <tool_call> <bos> <unused7> [TOOL_CALLS] <image>".split(), "\U000e0041\U000e0042"]
PLACEHOLDERS = ["{{ post }}", "{{ delimiter }}", "{{ examples }}"]
WORDS = st.lists(st.sampled_from([*TOKENS, *PLACEHOLDERS, "<", ">", "|", "s", "[", "INST]", "<|", "rain"]) | st.text())


def examples(count=2):
    posts = [Post(f"e{i}", f"Title {i}", f"Rain on day {i}.") for i in range(count)]
    return [
        PromptExample(p.record_id, p, {"labels": ("rape_past", "no_crisis")[i % 2 : i % 2 + 1]})
        for i, p in enumerate(posts)
    ]


def few_shot():
    return build(CRADLE, keys=["labels"], system="open", examples=examples(), secret=SECRET)


def user(prompt, post):
    mark = delimiter(post, secret=SECRET)
    system, parts = prompt.render(post, delimiter=mark)
    (text,) = parts
    return mark, system, text


def test_the_prompt_has_the_papers_sections_in_order_and_the_post_last():
    post = Post("r", "A walk", "It rained.")
    mark, system, text = user(few_shot(), post)
    headings = re.findall(r"^[A-Z][A-Z ]+(?= \(|$)", text, flags=re.MULTILINE)
    sections = "TASK|ALLOWED LABELS|DEFINITIONS|GUIDELINES|SPECIAL RULES|RESPONSE FORMAT|EXAMPLES|PURPOSE|YOUR POST"
    assert headings == sections.split("|")
    for name in CATEGORY.names:
        assert f'- "{name}"\n' in text
    assert text.endswith(f"\n{mark}\nTitle: A walk Text: It rained.\n{mark}")
    assert text.count(mark) == 3
    assert len(system.splitlines()) == 3
    assert "{{" not in text


def test_everything_before_the_delimiter_is_shared_so_that_it_can_be_cached():
    prompt = few_shot()
    (one, _, left), (other, _, right) = (user(prompt, Post(r, r, r)) for r in ("a", "b"))
    assert left[: left.index(one)] == right[: right.index(other)]
    assert left.index(one) > 0.9 * (len(left) - 100)


def test_zero_shot_and_training_prompts_are_shorter_and_show_no_example():
    post = Post("r", "A walk", "It rained.")
    few, zero = user(few_shot(), post)[2], user(build(CRADLE, keys=["labels"], system="commercial"), post)[2]
    training = build(CRADLE, keys=["labels"], system="training", examples=examples(), secret=SECRET)
    short = user(training, post)[2]
    assert "EXAMPLES" in few
    assert "EXAMPLES" not in zero
    assert "Rain on day" not in short
    assert training.examples == ()
    assert training.name == "cradle-labels-training"
    assert len(short) < 0.5 * len(zero)
    assert len(build(CRADLE, keys=["labels"], system="commercial").system.splitlines()) == 1


def test_open_models_are_told_the_form_of_the_answer_and_commercial_ones_the_role():
    """CRADLE B.1: stronger constraints on the format for open models, the same user message for all."""
    opened, commercial = (build(CRADLE, keys=["labels"], system=kind) for kind in ("open", "commercial"))
    assert opened.template == commercial.template
    assert '"labels"' in opened.system and "no reasoning" in opened.system
    assert '"labels"' not in commercial.system and opened.system.startswith(CRADLE.role)
    assert commercial.system.startswith(CRADLE.role)


def test_examples_show_their_answers_between_delimiters_of_their_own():
    text = user(few_shot(), Post("r", "A walk", "It rained."))[2]
    for i, label in enumerate(["rape_past", "no_crisis"]):
        mark = delimiter(Post(f"e{i}", "", ""), secret=SECRET)
        answer = json.dumps({"labels": [label]})
        assert f"{mark}\nTitle: Title {i} Text: Rain on day {i}.\n{mark}\n{answer}\n" in text


@given(WORDS, WORDS)
def test_no_post_can_speak_as_anything_but_a_post(title, body):
    prompt = few_shot()
    mark = delimiter(Post("r", "", ""), secret=SECRET)
    post = Post("r", "".join(title), " ".join([*body, mark, mark.upper(), "".join(body)]))
    harmless = user(prompt, Post("r", "", ""))[2]
    _, _, text = user(prompt, post)
    assert text.count(mark) == 3
    head = harmless[: harmless.rindex("Title:")]
    assert text.startswith(head)
    inside = text.removeprefix(head).removesuffix(f"\n{mark}")
    assert mark not in inside.lower()
    assert not RESERVED.search(inside)


@pytest.mark.parametrize("token", TOKENS)
def test_reserved_tokens_are_stripped_even_when_nested(token):
    nested = token[:2] + token + token[2:]
    for text in (token, token.upper(), f"a{token}b", nested):
        cleaned = clean(text, delimiters=())
        assert token.lower() not in cleaned.lower()
        assert not RESERVED.search(cleaned)


def test_plain_words_are_unchanged():
    text = "I <3 you | it's 5 > 4 [sic] a<b ... 'tags' #1 {x}"
    assert clean(text, delimiters=()) == text


@given(st.text(), st.text())
def test_a_delimiter_belongs_to_its_record_and_needs_the_secret(left, right):
    marks = [delimiter(Post(r, "t", "b"), secret=SECRET) for r in (left, right)]
    assert all(re.fullmatch("[0-9a-f]{16}", mark) for mark in marks)
    assert (marks[0] == marks[1]) == (left == right)
    assert delimiter(Post(left, "other", "words"), secret=SECRET) == marks[0]
    assert delimiter(Post(left, "t", "b"), secret=b"another") != marks[0]


def test_the_schema_is_what_strict_modes_take():
    schema = few_shot().schema
    assert schema == {
        "type": "object",
        "properties": {"labels": {"type": "array", "items": {"type": "string", "enum": list(CATEGORY.names)}}},
        "required": ["labels"],
        "additionalProperties": False,
    }
    severity = build(FIGSIM, keys=["severity"], system="open").schema["properties"]["severity"]
    assert severity == {"type": "string", "enum": list(FIGSIM.category("severity").names)}


def test_the_digest_changes_with_everything_that_is_asked_and_with_nothing_else():
    def digest(**changes):
        given = {"keys": ["labels"], "system": "open", "examples": examples(), "secret": SECRET} | changes
        return build(CRADLE, **given).digest

    other_words = [PromptExample("e0", Post("e0", "Title 0", "Sun."), {"labels": ("rape_past",)}), *examples()[1:]]
    other_label = [PromptExample("e0", examples()[0].post, {"labels": ("rape_ongoing",)}), *examples()[1:]]
    changed = [
        digest(),
        digest(system="commercial"),
        digest(system="training"),
        digest(examples=()),
        digest(examples=examples()[::-1]),
        digest(examples=other_words),
        digest(examples=other_label),
        digest(secret=b"another"),
        build(FIGSIM, keys=["figurative"], system="open").digest,
    ]
    assert len(set(changed)) == len(changed)
    assert digest() == digest() == few_shot().digest
    # without a key the words stay out of it, as a plain digest confirms a guess
    assert digest(examples=other_words, secret=b"") == digest(secret=b"")


def test_what_annotators_alone_may_say_is_not_asked_for():
    text = user(build(FIGSIM, keys=["severity", "related"], system="open"), Post("m", "", ""))[2]
    assert '"Suicide attempt/death"' in text
    for name in ("Third-person description", "Suicide death", "Suicide attempts"):
        assert f'"{name}"' not in text
    with refused("UnknownCategory"):
        build(FIGSIM, keys=["labels"], system="open")


def test_examples_show_what_a_model_may_answer_of_what_annotators_said():
    meme = Post("m0", "", "caption")
    labels = {"severity": ("Suicide death",), "related": ("Third-person description", "Harmful factors")}
    prompt = build(
        FIGSIM, keys=list(labels), system="open", examples=[PromptExample("m0", meme, labels)], secret=SECRET
    )
    answer = json.dumps({"severity": "Suicide attempt/death", "related": ["Harmful factors"]})
    assert answer in user(prompt, Post("m", "", ""))[2]
    with refused("BadExample", match="m0"):
        build(
            FIGSIM,
            keys=["modality"],
            system="open",
            examples=[PromptExample("m0", meme, {"modality": ()})],
            secret=SECRET,
        )


GOLD = st.dictionaries(st.text(min_size=1, max_size=4), st.sampled_from(CATEGORY.valid_sets(most=3)), max_size=30)


def in_labels(gold):
    return {item: {"labels": labels} for item, labels in gold.items()}


@given(GOLD, st.integers(0, 8), st.integers(0, 99), st.randoms(use_true_random=False))
def test_chosen_examples_do_not_depend_on_the_order_of_the_gold(gold, count, seed, rng):
    chosen = choose(in_labels(gold), count=count, seed=seed)
    shuffled = dict(rng.sample(sorted(gold.items()), len(gold)))
    assert choose(in_labels(shuffled), count=count, seed=seed) == chosen
    assert len(chosen) == len(set(chosen)) == min(count, len(gold))
    if chosen:
        assert len(gold[chosen[0]]) == max(map(len, gold.values()))


def test_chosen_examples_cover_as_many_labels_as_possible_and_differ_by_seed():
    gold = {f"{name}{i}": frozenset({name}) for name in CATEGORY.names for i in range(20)}
    drawn = [choose(in_labels(gold), count=15, seed=seed) for seed in range(3)]
    for chosen in drawn:
        assert {name for r in chosen for name in gold[r]} == set(CATEGORY.names)
    assert len({tuple(chosen) for chosen in drawn}) == 3
    memes = {f"m{i}": frozenset({"Harmful factors"} if i % 2 else ()) for i in range(10)}
    assert {memes[r] for r in choose(in_labels(memes), count=2, seed=0)} == {
        frozenset(),
        frozenset({"Harmful factors"}),
    }


def test_chosen_examples_show_the_labels_of_every_category():
    gold = {f"i{n}": {"tone": frozenset({"calm"}), "topic": frozenset({"work"})} for n in range(9)}
    gold |= {
        "j": {"tone": frozenset({"calm"}), "topic": frozenset()},
        "k": {"tone": frozenset({"tense"}), "topic": frozenset({"work"})},
    }
    assert {"j", "k"} < set(choose(gold, count=3, seed=0))


def test_the_registry_gets_each_prompt_once_and_no_example(tmp_path):
    database = tmp_path / "mlflow.sqlite"
    uri = mlflow_database.place(tmp_path)
    few, zero = few_shot(), build(CRADLE, keys=["labels"], system="open")
    versions = [register(prompt, tracking_uri=uri) for prompt in (few, zero, few, zero, few_shot())]
    assert versions == [1, 2, 1, 2, 1]
    severity = build(FIGSIM, keys=["severity"], system="open")
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: register(prompt, tracking_uri=uri), [severity] * 4))
    assert len(set(together)) == 1
    from mlflow import MlflowClient

    stored = MlflowClient(tracking_uri=uri, registry_uri=uri).get_prompt_version(few.name, "1")
    assert [m["content"] for m in stored.template] == [few.system, few.template]
    assert stored.tags["digest"] == few.digest
    assert stored.response_format == few.schema
    with sqlite3.connect(database) as connection:
        assert not [line for line in connection.iterdump() if "Rain on day" in line]


def test_the_probes_own_sentences_lose_their_tokens_too():
    for family in attacks().values():
        for attack in family:
            assert not RESERVED.search(clean(attack.text, delimiters=()))
