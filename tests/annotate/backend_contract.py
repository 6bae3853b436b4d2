"""What every backend must do, whatever tool it is: the same checks for Label Studio and files.

A test module of a backend makes the backend and *hands* (how an annotator answers in that tool) and calls each check
with a queue name of its own, e.g. ``check_answers(backend, hands=hands, name="memes/contract-answers")``. Checks leave
nothing behind. ``CHECKS`` has all of them.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from PIL import Image

from pipelines.annotate.backends import AnnotationTask, AnnotatorAnswer, Backend, Item, Queue
from pipelines.annotate.form import Choice, Form, FormQuestion

ANNOTATORS = ("a1", "a2")
# Hostile on purpose: any content of a post must be preserved unchanged and must not break a form.
TEXT = 'A <script>alert("x")</script> & "quoted" ]]> $item {{ body }} ünï\nsecond line'
CLOCKS = timedelta(minutes=5)
NOTHING = {"kind": ("None",), "context": ("context-required",)}


class Hands(Protocol):
    """What an annotator does in the tool itself, with no help of the backend under test."""

    def answer(self, queue: Queue, item: Item, *, values: Mapping[str, tuple[str, ...]], note: str = "") -> None:
        """Answer an item, once more if it is answered already."""

    def skip(self, queue: Queue, item: Item) -> None:
        """Skip an item."""


def form(*, content: str = "texts") -> Form:
    """A form with one question of each kind; its words hold what XML, HTML and Markdown would trip over."""
    kinds = (
        Choice("Pun/Double meaning", 'Two "ways" to take it.'),
        Choice("Irony/sarcasm", "The opposite <is> meant & said."),
        Choice("None", "Nothing of this."),
    )
    needs = (Choice("no-context-required", "No."), Choice("context-required", "Yes."))
    return Form(
        title='Contract <b>&</b> "form" $title',
        content="images" if content == "images" else "texts",
        warning="What follows may weigh on you & is <not> to be looked at alone.",
        contacts=("A <friend> & colleague", "https://example.org/help?a=1&b=2"),
        guideline="# Guideline\n\n- **One** thing & <another>\n- $two ]]>\n",
        questions=(
            FormQuestion("kind", "Which kinds does it use?", "multi", kinds, required=True),
            FormQuestion("context", "Does one need to know more?", "single", needs, required=True),
        ),
        note="A note (not required)",
        note_required=False,
        adjudication=False,
    )


def adjudication() -> Form:
    """The same for the third person."""
    plain = form()
    questions = tuple(replace(question, required=False) for question in plain.questions)
    third = {"questions": questions, "note": "Why?", "note_required": True, "adjudication": True}
    return replace(plain, title="Adjudication", **third)


def picture(shade: int = 120) -> bytes:
    """A small grey PNG."""
    buffer = io.BytesIO()
    Image.new("RGB", (24, 16), (shade, shade, shade)).save(buffer, format="PNG")
    return buffer.getvalue()


def texts(count: int, *, start: int = 0) -> list[AnnotationTask]:
    """Tasks of text, items ``r000/0`` and on."""
    return [
        AnnotationTask(item=(f"r{n:03}", 0), position=n, text={"title": f"Post {n} & <more>", "body": TEXT})
        for n in range(start, start + count)
    ]


def images(count: int) -> list[AnnotationTask]:
    """Tasks of pictures: two of each record."""
    return [
        AnnotationTask(item=(f"m{n // 2:03}", n % 2), position=n, image=picture(n * 9 % 250), media_type="image/png")
        for n in range(count)
    ]


@contextlib.contextmanager
def _queues(backend: Backend, name: str, *, shape: Form | None = None) -> Iterator[tuple[Queue, Queue]]:
    first, second = (Queue(name, annotator) for annotator in ANNOTATORS)
    for queue in (first, second):
        backend.prepare(queue, form=shape or form())
    try:
        yield first, second
    finally:
        backend.purge([first, second])


def _items(answers: list[AnnotatorAnswer]) -> list[Item]:
    return [answer.item for answer in answers]


def check_absent(backend: Backend, *, hands: Hands, name: str) -> None:
    """A queue that was never prepared is empty; removing and purging it is nothing."""
    queue = Queue(name, ANNOTATORS[0])
    assert backend.present(queue) == {}
    assert backend.answers(queue) == []
    backend.remove(queue, items=[("r000", 0)])
    backend.purge([queue])


def check_prepare(backend: Backend, *, hands: Hands, name: str) -> None:
    """Preparing again leaves tasks and answers unchanged; each queue has its own address."""
    with _queues(backend, name) as (first, second):
        backend.add(first, tasks=texts(2))
        hands.answer(first, ("r000", 0), values=NOTHING)
        backend.prepare(first, form=form())
        assert set(backend.present(first)) == {("r000", 0), ("r001", 0)}
        assert _items(backend.answers(first)) == [("r000", 0)]
        assert backend.present(second) == {}
        assert backend.address(first) and backend.address(first) != backend.address(second)


def check_add(backend: Backend, *, hands: Hands, name: str) -> None:
    """An item is added once, whatever is asked for, and keeps its time; times are aware and near now."""
    with _queues(backend, name) as (first, second):
        backend.add(first, tasks=texts(2))
        before = backend.present(first)
        backend.add(first, tasks=texts(3))
        backend.add(first, tasks=[])
        after = backend.present(first)
        assert sorted(after) == [("r000", 0), ("r001", 0), ("r002", 0)]
        assert {item: after[item] for item in before} == before
        now = datetime.now(UTC)
        assert all(abs(now - moment) < CLOCKS for moment in after.values())
        assert backend.present(second) == {}


def check_images(backend: Backend, *, hands: Hands, name: str) -> None:
    """Pictures of one record are items of their own."""
    with _queues(backend, name, shape=form(content="images")) as (first, _):
        backend.add(first, tasks=images(3))
        assert sorted(backend.present(first)) == [("m000", 0), ("m000", 1), ("m001", 0)]
        hands.answer(first, ("m000", 1), values=NOTHING)
        assert _items(backend.answers(first)) == [("m000", 1)]


def check_answers(backend: Backend, *, hands: Hands, name: str) -> None:
    """Answers come back as they were given, from their own queue alone, ordered by item, time and id."""
    both: dict[str, tuple[str, ...]] = {
        "kind": ("Pun/Double meaning", "Irony/sarcasm"),
        "context": ("context-required",),
    }
    with _queues(backend, name) as (first, second):
        for queue in (first, second):
            backend.add(queue, tasks=texts(3))
        assert backend.answers(first) == []
        hands.answer(first, ("r002", 0), values=both, note=TEXT)
        hands.answer(first, ("r000", 0), values={"kind": ("None",), "context": ("no-context-required",)})
        found = backend.answers(first)
        assert _items(found) == [("r000", 0), ("r002", 0)]
        assert {key: set(values) for key, values in found[1].values.items()} == {k: set(v) for k, v in both.items()}
        assert found[0].values == {"kind": ("None",), "context": ("no-context-required",)}
        assert (found[1].note, found[0].note) == (TEXT, "")
        assert not any(answer.skipped for answer in found)
        assert all(answer.by and answer.id and answer.answered.tzinfo is not None for answer in found)
        assert all(answer.seconds is None or answer.seconds >= 0 for answer in found)
        assert backend.answers(second) == []
        assert backend.answers(first) == found


def check_twice(backend: Backend, *, hands: Hands, name: str) -> None:
    """The backend keeps a second answer of the same annotator, as the last one."""
    with _queues(backend, name) as (first, _):
        backend.add(first, tasks=texts(1))
        hands.answer(first, ("r000", 0), values=NOTHING)
        hands.answer(first, ("r000", 0), values={"kind": ("None",), "context": ("no-context-required",)})
        found = backend.answers(first)
        assert found[-1].values["context"] == ("no-context-required",)
        assert len({answer.id for answer in found}) == len(found)
        assert found == sorted(found, key=lambda answer: (answer.item, answer.answered, answer.id))


def check_skip(backend: Backend, *, hands: Hands, name: str) -> None:
    """A skip comes back as a skip, and not as an answer."""
    with _queues(backend, name) as (first, _):
        backend.add(first, tasks=texts(2))
        hands.skip(first, ("r001", 0))
        found = backend.answers(first)
        assert [(answer.item, answer.skipped) for answer in found] == [(("r001", 0), True)]


def check_adjudication(backend: Backend, *, hands: Hands, name: str) -> None:
    """The third person's queue takes sides and gives back a decision with its rationale."""
    sides = ({"kind": ("None",)}, {"kind": ("Irony/sarcasm", "Pun/Double meaning")}, {"kind": ()})
    queue = Queue(f"{name}/adjudication", "c1")
    task = AnnotationTask(item=("r000", 0), position=0, text={"body": TEXT}, sides=sides, disputed=("kind",))
    backend.prepare(queue, form=adjudication())
    try:
        backend.add(queue, tasks=[task])
        hands.answer(queue, ("r000", 0), values={"kind": ("Irony/sarcasm",)}, note="Because & <so>.")
        (found,) = backend.answers(queue)
        assert (found.item, found.values) == (("r000", 0), {"kind": ("Irony/sarcasm",)})
        assert found.note == "Because & <so>."
    finally:
        backend.purge([queue])


def check_remove(backend: Backend, *, hands: Hands, name: str) -> None:
    """What is removed is gone with its answers; removing it again, or what never was, is nothing."""
    with _queues(backend, name) as (first, second):
        for queue in (first, second):
            backend.add(queue, tasks=texts(2))
            hands.answer(queue, ("r000", 0), values=NOTHING)
        for _ in range(2):
            backend.remove(first, items=[("r000", 0), ("never", 3)])
        assert set(backend.present(first)) == {("r001", 0)}
        assert backend.answers(first) == []
        assert set(backend.present(second)) == {("r000", 0), ("r001", 0)}
        assert _items(backend.answers(second)) == [("r000", 0)]


def check_purge(backend: Backend, *, hands: Hands, name: str) -> None:
    """A purge removes everything; purging again does nothing; another round's queue is unchanged."""
    other = Queue(f"{name}-other", ANNOTATORS[0])
    backend.prepare(other, form=form())
    try:
        backend.add(other, tasks=texts(1))
        with _queues(backend, name) as (first, second):
            backend.add(first, tasks=texts(1))
            hands.answer(first, ("r000", 0), values=NOTHING)
            for _ in range(2):
                backend.purge([first, second])
            assert backend.present(first) == {}
            assert backend.answers(first) == []
        assert set(backend.present(other)) == {("r000", 0)}
    finally:
        backend.purge([other])


CHECKS: tuple[Callable[..., None], ...] = tuple(
    check for name, check in list(globals().items()) if name.startswith("check_")
)
