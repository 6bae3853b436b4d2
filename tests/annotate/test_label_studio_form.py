"""The form and the tasks as Label Studio is given them; that it shows them is looked at in a browser."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from pipelines.annotate.backends import AnnotationTask
from pipelines.annotate.backends._labelling_config import CONTENT, NOTE, SIDES, config, shown
from pipelines.annotate.form import Form, build_form
from pipelines.core.taxonomy import load
from tests.annotate import backend_contract as contract

VARIABLE = re.compile(r"\$[\w[\].{}]+")  # as Label Studio's frontend looks for them
FORMS = {"hostile": contract.form(), "third": contract.adjudication()}
for name, content in (("figsim", "images"), ("cradle", "texts")):
    FORMS[name] = build_form(load(name), title=name, content=content, warning="Careful.", contacts=("Somebody",))


def _tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    found: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Tags().feed(text)
    return found


def _words(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", text))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_warning_stands_above_all_else_and_words_are_shown_unchanged(form: Form) -> None:
    shown_first = ET.fromstring(config(form)).find("HyperText")
    assert shown_first is not None
    text = _words(shown_first.attrib["value"])
    assert form.warning in text and all(contact in text for contact in form.contacts)
    (markdown,) = ET.fromstring(config(form)).findall(".//Collapse/Panel//Markdown")
    assert html.unescape(markdown.attrib["value"]) == form.guideline, "folded away and complete"
    own = {f"${CONTENT}", f"${SIDES}"}
    values = [v for e in ET.fromstring(config(form)).iter() for k, v in e.attrib.items() if k != "alias"]
    assert not [v for v in values if v not in own and VARIABLE.search(v)], "no words are taken for a variable"


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_question_is_there_with_its_labels_and_what_they_mean(form: Form) -> None:
    root = ET.fromstring(config(form))
    for question in form.questions:
        (choices,) = [each for each in root.iter("Choices") if each.attrib["name"] == question.key]
        assert choices.attrib["required"] == ("true" if question.required else "false")
        assert choices.attrib["choice"] == ("multiple" if question.kind == "multi" else "single-radio")
        found = [(each.attrib["value"], each.attrib["hint"]) for each in choices]
        assert [value for value, _ in found] == [choice.value for choice in question.choices]
        assert all(
            hint.replace("\u2060", "") == choice.hint for (_, hint), choice in zip(found, question.choices, strict=True)
        )
    (note,) = root.iter("TextArea")
    assert (note.attrib["name"], note.attrib["required"]) == (NOTE, "true" if form.note_required else "false")


def test_a_picture_is_blurred_until_its_own_box_is_checked() -> None:
    content = shown(contract.images(1)[0])[CONTENT]
    tags = _tags(content)
    (box,) = [attrs for tag, attrs in tags if tag == "input"]
    assert "checked" not in box
    (picture,) = [attrs for _, attrs in tags if attrs.get("class") == "crisis-picture"]
    assert "filter: blur(" in str(picture["style"])  # even where the style sheet is missing
    assert content.count("data:image/png;base64,") == 1
    assert not any(tag == "img" for tag, _ in tags)
    style = ET.fromstring(config(FORMS["figsim"])).findtext("Style") or ""
    assert ".crisis-veil input:checked ~ .crisis-picture { filter: none !important; }" in style
    same = [AnnotationTask(("m0", n), n, image=contract.picture(), media_type="image/png") for n in range(2)]
    assert len({shown(task)[CONTENT] for task in same}) == 2, "so that the blur comes back"


def test_a_hostile_post_is_shown_unchanged() -> None:
    content = shown(AnnotationTask(("p0", 0), 0, text={"title": contract.TEXT, "body": contract.TEXT}))[CONTENT]
    assert {tag for tag, _ in _tags(content)} == {"div", "h3"}
    assert _words(content) == contract.TEXT * 2
    assert not VARIABLE.search(content)
    evil = AnnotationTask(("p0", 0), 0, image=b"x", media_type="image/png'); --x: url('evil")
    (picture,) = [attrs for _, attrs in _tags(shown(evil)[CONTENT]) if attrs.get("class") == "crisis-picture"]
    assert "'evil" not in str(picture["style"])


def test_an_adjudicator_sees_nameless_sides_and_what_to_decide() -> None:
    form = build_form(load("figsim"), title="x", content="images", warning="Careful.", contacts=(), adjudication=True)
    assert f"${SIDES}" in {each.attrib["value"] for each in ET.fromstring(config(form)).iter("HyperText")}
    sides = ({"severity": ("None",), "related": ()}, {"severity": ("Suicide death",), "related": ("<b>",)})
    task = AnnotationTask(
        ("m0", 0), 0, image=b"x", media_type="image/png", sides=sides, disputed=("severity", "related")
    )
    text = _words(shown(task)[SIDES])
    assert text.startswith("To decide: severity, related")
    assert text.index("A") < text.index("None") < text.index("B") < text.index("Suicide death")
    assert "<b>" in text
    data = shown(AnnotationTask(("m0", 0), 0, text={"body": "x"}, disputed=("severity",)))
    assert "severity" in _words(data[SIDES]), "an unanswered case has no sides and is still a case"
