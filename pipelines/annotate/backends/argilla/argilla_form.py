"""Render an annotation form as an Argilla dataset and an annotation task as the fields of a record.

Argilla cannot blur pictures and shows the guideline on a separate page. Two fields are therefore custom HTML templates:
one shows the warning and the contacts above every record, the other blurs a picture until the annotator clicks it.

Posts are untrusted. Argilla 2.8 renders a text field as HTML, including external pictures. It also writes the whole
record into a script of each custom field, and a ``</script>`` in the record would end that script. Therefore all text
is written as HTML entities, so that no field holds a ``<`` from a post; the page shows the original characters.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipelines.annotate.backends.backend import AnnotationTask
from pipelines.annotate.forms.form import Form, FormQuestion
from pipelines.errors import BackendUnavailable

if TYPE_CHECKING:
    from argilla import Argilla as Client
    from argilla import CustomField, Dataset, LabelQuestion, MultiLabelQuestion, TextField, Workspace

NOTE = "note"
TEXTS = ("title", "body")
# The server's limits, in characters.
_GUIDELINES = 10_000
_HINT = 1_000
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_NOTICE = """<div style="font-family: sans-serif; border-left: 4px solid #b45309; padding: 4px 12px">
<p><strong>{warning}</strong></p><ul>{contacts}</ul></div>"""

_PICTURE = """<style>
.shade { display: block; cursor: pointer; font-family: sans-serif; }
.shade input { position: absolute; opacity: 0; }
.shade img { max-width: 100%; filter: blur(28px); clip-path: inset(0); }
.shade input:checked ~ img { filter: none; }
.shade input:checked ~ span { visibility: hidden; }
</style>
<label class="shade"><input type="checkbox"><span>Click to see the picture. Click again to blur it.</span><br>
<img alt="the picture of this task" src="{{record.fields.picture.source}}"></label>"""


def dataset(form: Form, *, name: str, workspace: Workspace, client: Client) -> Dataset:
    """Build the Argilla dataset of an annotation queue from a form, without creating it on the server.

    Raises:
        BackendUnavailable: warning, contacts and guideline exceed Argilla's limit (10,000 characters).
    """
    import argilla as rg

    settings = rg.Settings(
        guidelines=_guidelines(form),
        fields=[
            rg.CustomField("notice", title="Before you look", template=_notice(form), required=False, _client=client),
            *_content(form, client=client),
            rg.TextField("disputed", title="To be decided", required=False, client=client),
            rg.TextField("sides", title="Answers so far", use_markdown=True, required=False, client=client),
        ],
        questions=[
            *(_question(question, client=client) for question in form.questions),
            rg.TextQuestion(NOTE, title=form.note, required=form.note_required, client=client),
        ],
        distribution=rg.TaskDistribution(min_submitted=1),
    )
    return rg.Dataset(name=name, workspace=workspace, settings=settings, client=client)


def fields(task: AnnotationTask) -> dict[str, object]:
    """Return the Argilla record of an annotation task: its non-empty fields by name, with text escaped as HTML."""
    found: dict[str, object] = {"notice": {"shown": "yes"}}
    found |= {name: _entities(words).replace("\n", "<br>") for name, words in task.text.items() if words}
    if task.image is not None:
        source = base64.b64encode(task.image).decode()
        found["picture"] = {"source": f"data:{_entities(task.media_type or 'image/png')};base64,{source}"}
    if task.disputed:
        found["disputed"] = ", ".join(task.disputed)
    if task.sides:
        found["sides"] = _table(task.sides)
    return found


def _content(form: Form, *, client: Client) -> list[CustomField | TextField]:
    import argilla as rg

    if form.content == "images":
        return [rg.CustomField("picture", title="Picture", template=_PICTURE, required=False, _client=client)]
    return [rg.TextField(name, required=False, client=client) for name in TEXTS]


def _question(question: FormQuestion, *, client: Client) -> LabelQuestion | MultiLabelQuestion:
    import argilla as rg

    kind = rg.LabelQuestion if question.kind == "single" else rg.MultiLabelQuestion
    made = kind(
        name=question.key,
        title=question.text,
        labels={choice.value: choice.value for choice in question.choices},
        required=question.required,
        client=client,
    )
    # The server shows a hint with each label; the SDK has no parameter for it.
    for option, choice in zip(made._model.settings.options, question.choices, strict=True):
        option["description"] = choice.hint[:_HINT]
    return made


def _guidelines(form: Form) -> str:
    contacts = "\n".join(f"- {_markdown(contact)}" for contact in form.contacts)
    text = f"**{_markdown(form.warning)}**\n\n{contacts}\n\n{form.guideline}"
    if len(text) > _GUIDELINES:
        detail = f"warning, contacts and guideline have {len(text)} characters, but its limit is {_GUIDELINES}"
        raise BackendUnavailable(backend="argilla", detail=detail)
    return text


def _notice(form: Form) -> str:
    contacts = "".join(f"<li>{_entities(contact)}</li>" for contact in form.contacts)
    return _NOTICE.format(warning=_entities(form.warning), contacts=contacts)


def _entities(text: str) -> str:
    """Return text escaped for HTML, also inside a Handlebars template."""
    return html.escape(text).replace("{", "&#123;").replace("}", "&#125;")


def _markdown(text: str) -> str:
    return html.escape(text, quote=False).replace("*", "&#42;").replace("_", "&#95;")


def _table(sides: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """Return the sides as columns A, B, … of a Markdown table with a row for each category."""
    keys = list(dict.fromkeys(key for side in sides for key in side))
    rows = [["", *(_LETTERS[n % len(_LETTERS)] for n in range(len(sides)))], ["---"] * (len(sides) + 1)]
    for key in keys:
        cells = ["–" if key not in side else ", ".join(side[key]) or "none of these" for side in sides]
        rows.append([_cell(cell) for cell in (key, *cells)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "&#124;")
