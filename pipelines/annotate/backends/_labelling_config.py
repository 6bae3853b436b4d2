"""Render an annotation form as Label Studio's labelling configuration (XML), and an annotation task as HTML.

Pictures are data URIs inside the task. CSS alone blurs them: a checkbox around the picture removes the blur, and the
next task has a new, unchecked checkbox. Without the style sheet, or in a browser that does not support it, the picture
stays blurred. All content is escaped here, because posts are untrusted and Label Studio would read ``$name`` as a
variable.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from pipelines.annotate.backends import AnnotationTask
from pipelines.annotate.form import Form, FormQuestion

CONTENT, SIDES, NOTE = "_content", "_sides", "_note"
"""Names of the elements that are not questions; a question's name is its category's key."""

# The media type is written into a style attribute, so only a plain type is allowed.
MEDIA_TYPE = re.compile(r"image/[a-z0-9.+-]+")
# 28 px: at this radius neither a face nor a meme's caption is recognizable (ours, checked on screen).
STYLE = """
.crisis-warning { border: 2px solid #b45309; border-radius: 6px; padding: 10px 14px; background: #fffbeb;
  color: #1c1917; margin-bottom: 12px; }
.crisis-warning p { margin: 0 0 6px 0; }
.crisis-warning ul { margin: 0; padding-left: 20px; list-style: disc; }
.crisis-columns { display: flex; flex-wrap: wrap; gap: 24px; align-items: flex-start; }
.crisis-left { flex: 1 1 420px; min-width: 320px; }
.crisis-right { flex: 1 1 380px; min-width: 300px; }
.crisis-veil { display: block; position: relative; overflow: hidden; cursor: pointer; background: #e7e5e4;
  border: 1px solid #a8a29e; border-radius: 6px; }
.crisis-veil input { position: absolute; opacity: 0; width: 100%; height: 100%; left: 0; top: 0; margin: 0; z-index: 2;
  cursor: pointer; }
.crisis-picture { display: block; height: 60vh; min-height: 320px; background-repeat: no-repeat;
  background-position: center; background-size: contain; }
.crisis-veil input:checked ~ .crisis-picture { filter: none !important; }
.crisis-lift { position: absolute; z-index: 1; left: 50%; top: 50%; transform: translate(-50%, -50%); color: #ffffff;
  background: #1c1917; padding: 8px 14px; border-radius: 6px; font-weight: 600; }
.crisis-veil input:checked ~ .crisis-lift { display: none; }
.crisis-veil input:focus-visible ~ .crisis-lift { outline: 3px solid #2563eb; }
.crisis-text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 0 12px 0; }
.crisis-sides { display: flex; flex-wrap: wrap; gap: 12px; }
.crisis-side { flex: 1 1 180px; border: 1px solid #a8a29e; border-radius: 6px; padding: 8px 12px; }
.lsf-sidepanels__wrapper_align_right { display: none; }
.lsf-sidepanels { padding-right: 0 !important; }
.crisis-guideline { max-height: 60vh; overflow-y: auto; }
.crisis-guideline h1, .crisis-guideline h2, .crisis-guideline h3 { font-size: 1.1rem; line-height: 1.4; margin: 8px 0; }
.crisis-key { font-weight: 600; margin-top: 6px; }
"""


def config(form: Form) -> str:
    """Return Label Studio's labelling configuration (XML) of a form."""
    root = ET.Element("View")
    ET.SubElement(root, "Style").text = STYLE
    contacts = "".join(f"<li>{_html(contact)}</li>" for contact in form.contacts)
    warning = f'<div class="crisis-warning"><p><strong>{_html(form.warning)}</strong></p><ul>{contacts}</ul></div>'
    _hypertext(root, name="_warning", value=warning)
    folded = ET.SubElement(ET.SubElement(root, "Collapse"), "Panel", value="Guideline")
    # A Panel cannot hold Markdown, but a View inside it can.
    ET.SubElement(ET.SubElement(folded, "View", className="crisis-guideline"), "Markdown", value=_html(form.guideline))
    columns = ET.SubElement(root, "View", className="crisis-columns")
    left = ET.SubElement(columns, "View", className="crisis-left")
    _hypertext(left, name=CONTENT, value=f"${CONTENT}")
    right = ET.SubElement(columns, "View", className="crisis-right")
    if form.adjudication:
        _hypertext(right, name=SIDES, value=f"${SIDES}")
    for question in form.questions:
        _question(right, question, named=form.adjudication)
    _note(right, form)
    return ET.tostring(root, encoding="unicode")


def shown(task: AnnotationTask) -> dict[str, str]:
    """Return the data of an annotation task as HTML by element name."""
    tags = {name: "h3" if name == "title" else "div" for name in task.text}
    passages = [f'<{tags[k]} class="crisis-text">{_html(text)}</{tags[k]}>' for k, text in task.text.items() if text]
    if task.image is not None:
        passages.append(_picture(task.image, media_type=task.media_type or "application/octet-stream"))
    # The position makes the HTML of equal pictures differ, so that a checked box is not carried over to the next task.
    content = f'<div data-position="{task.position}">{"".join(passages)}</div>'
    if not task.sides and not task.disputed:
        return {CONTENT: content}
    return {CONTENT: content, SIDES: _sides(task)}


def _hypertext(parent: ET.Element, *, name: str, value: str) -> None:
    ET.SubElement(parent, "HyperText", name=name, value=value, inline="true", selectionEnabled="false")


def _question(parent: ET.Element, question: FormQuestion, *, named: bool) -> None:
    text = f"{question.key}: {question.text}" if named else question.text
    ET.SubElement(parent, "Header", value=_plain(text), size="5")
    choices = ET.SubElement(
        parent,
        "Choices",
        name=question.key,
        toName=CONTENT,
        choice="multiple" if question.kind == "multi" else "single-radio",
        required="true" if question.required else "false",
        requiredMessage=_plain(f"Please answer: {question.text}"),
    )
    for choice in question.choices:
        element = ET.SubElement(choices, "Choice", value=_plain(choice.value), hint=_plain(choice.hint))
        if "$" in choice.value:
            element.set("alias", choice.value)  # the value in results; never read as a variable


def _note(parent: ET.Element, form: Form) -> None:
    ET.SubElement(parent, "Header", value=_plain(form.note), size="5")
    ET.SubElement(
        parent,
        "TextArea",
        name=NOTE,
        toName=CONTENT,
        rows="3",
        maxSubmissions="1",
        editable="true",
        showSubmitButton="false",  # the field's text is sent with the answer
        required="true" if form.note_required else "false",
        requiredMessage=_plain(f"Please fill in: {form.note}"),
    )


def _picture(image: bytes, *, media_type: str) -> str:
    # Not <img src="data:…">: Label Studio removes data URIs from src, and its task list would show pictures unblurred.
    kind = media_type if MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
    data = f"data:{kind};base64,{base64.b64encode(image).decode()}"
    return (
        '<label class="crisis-veil"><input type="checkbox" aria-label="Show the picture">'
        f'<span class="crisis-picture" role="img" aria-label="The picture" style="filter: blur(28px);'
        f" background-image: url('{data}')\"></span>"
        '<span class="crisis-lift">Blurred. Click to show, click again to hide.</span></label>'
    )


def _sides(task: AnnotationTask) -> str:
    disputed = _html(", ".join(task.disputed))
    sides = "".join(
        f'<div class="crisis-side"><strong>{chr(ord("A") + number)}</strong>{_answers(side)}</div>'
        for number, side in enumerate(task.sides)
    )
    return f'<p class="crisis-text"><strong>To decide: {disputed}</strong></p><div class="crisis-sides">{sides}</div>'


def _answers(side: Mapping[str, tuple[str, ...]]) -> str:
    return "".join(
        f'<div class="crisis-key">{_html(key)}</div><div>{_html(", ".join(labels) or "nothing of this")}</div>'
        for key, labels in side.items()
    )


def _html(text: str) -> str:
    return html.escape(text).replace("$", "&#36;")


def _plain(text: str) -> str:
    return text.replace("$", "$\u2060")
