"""Answer Label Studio tasks as synthetic annotators, each with its own account, through the HTTP API.

They know the truth and deviate from it in a seeded share of answers, always with an answer that the form allows.
``Habits`` makes them behave like people: answer twice, skip, and send labels that the form does not offer.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from crisis_corpus_sandbox.reddit import seeded
from pipelines.annotate.backends._labelling_config import CONTENT, NOTE
from pipelines.annotate.form import Form, FormQuestion, read_values
from pipelines.core.taxonomy import Category, Scheme

Item = tuple[str, int]
Values = dict[str, tuple[str, ...]]
OUTSIDE = "a label of no scheme"
RATIONALE = "Decided by the guideline."
PAGE = 200


@dataclass(frozen=True, slots=True)
class Habits:
    """Items per session that are skipped, answered twice (wrongly first) or labelled outside the scheme."""

    skip: int = 0
    twice: int = 0
    outside: int = 0


@dataclass(frozen=True, slots=True)
class ShownTask:
    """One task of a queue; ``done`` if it has been answered or skipped."""

    id: int
    item: Item
    disputed: tuple[str, ...]
    done: bool


def annotate(
    *,
    url: str,
    email: str,
    password: str,
    queue_title: str,
    truth: Mapping[Item, Mapping[str, Sequence[str]]],
    form: Form,
    scheme: Scheme,
    errors: float,
    seed: int,
    habits: Habits = Habits(),
    limit: int | None = None,
) -> dict[str, int]:
    """Answer the open tasks of the queue in order, at most ``limit``; return how many were answered, wrong, skipped ...

    ``truth`` has the labels of each item and category. ``errors`` is the share of answers that differ from it in one
    category; ``seed`` determines, with the account and the item, which do and how.
    """
    done: Counter[str] = Counter(answered=0, wrong=0, skipped=0, twice=0, outside=0)
    with log_in(url, email=email, password=password) as client:
        waiting = [task for task in asked(client, queue_title=queue_title) if not task.done]
        odd = _odd(waiting, habits=habits, chance=seeded(seed, email))
        for task in waiting[:limit]:
            chance = seeded(seed, email, *task.item)
            right = _right(truth[task.item], form=form, scheme=scheme)
            wrong = _missed(right, form=form, scheme=scheme, chance=chance)
            given = wrong if chance.random() < errors else right
            done += _sit(client, task, given, instead=wrong, habit=odd.get(task.item))
            done["wrong"] += given != right and odd.get(task.item) not in ("skip", "outside")
    return dict(sorted(done.items()))


def adjudicate(
    *,
    url: str,
    email: str,
    password: str,
    queue_title: str,
    truth: Mapping[Item, Mapping[str, Sequence[str]]],
    form: Form,
    scheme: Scheme,
    rationale: str = RATIONALE,
    limit: int | None = None,
) -> dict[str, int]:
    """Decide the disputed questions by the truth, with a rationale; return the number of ``decided`` items."""
    with log_in(url, email=email, password=password) as client:
        waiting = [task for task in asked(client, queue_title=queue_title) if not task.done][:limit]
        for task in waiting:
            right = _right(truth[task.item], form=form, scheme=scheme)
            send(client, task, {key: right[key] for key in task.disputed}, note=rationale)
    return {"decided": len(waiting)}


def _sit(client: httpx.Client, task: ShownTask, given: Values, *, instead: Values, habit: str | None) -> Counter[str]:
    if habit == "skip":
        send(client, task, {}, skipped=True)
        return Counter(skipped=1)
    if habit == "twice":
        send(client, task, instead)
    if habit == "outside":
        given = {**given, next(iter(given)): (OUTSIDE,)}
    send(client, task, given)
    return Counter(answered=1) + Counter([habit] if habit else [])


def _odd(waiting: Sequence[ShownTask], *, habits: Habits, chance: Random) -> dict[Item, str]:
    """Return the habit that applies to each affected item; at most one per item."""
    items = sorted(task.item for task in waiting)
    chance.shuffle(items)
    ways = [name for name in ("skip", "twice", "outside") for _ in range(getattr(habits, name))]
    return dict(zip(items, ways, strict=False))


def _right(truth: Mapping[str, Sequence[str]], *, form: Form, scheme: Scheme) -> Values:
    """Return the truth as form values, in the form's order of choices."""
    values: Values = {}
    for question in (question for question in form.questions if question.key in scheme.categories):
        none = scheme.categories[question.key].none
        labels = set(truth[question.key]) or {str(none)}
        values[question.key] = tuple(choice.value for choice in question.choices if choice.value in labels)
    return values


def _missed(right: Values, *, form: Form, scheme: Scheme, chance: Random) -> Values:
    """Return a valid answer that differs in one category."""
    question = chance.choice([question for question in form.questions if question.key in scheme.categories])
    others = _alternatives(question, right[question.key], category=scheme.categories[question.key])
    return {**right, question.key: chance.choice(others)} if others else right


def _alternatives(question: FormQuestion, right: tuple[str, ...], *, category: Category) -> list[tuple[str, ...]]:
    offered = [choice.value for choice in question.choices]
    sets: list[tuple[str, ...]] = [(label,) for label in offered]
    if question.kind == "multi":
        sets += [tuple(x for x in offered if (x in right) != (x == label)) for label in offered if label in right]
        sets += [tuple(x for x in offered if x in right or x == label) for label in offered if label not in right]
    wanted = read_values(category, right).labels
    checked = [(values, read_values(category, values)) for values in sets if values]
    return [values for values, found in checked if not found.violations and found.labels != wanted]


@contextmanager
def log_in(url: str, *, email: str, password: str) -> Iterator[httpx.Client]:
    """Log in as a browser does: fetch the form's CSRF token, then obtain a session cookie."""
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True, trust_env=False) as client:
        page = client.get("/user/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        fields = {"csrfmiddlewaretoken": token[1] if token else "", "email": email, "password": password}
        client.post("/user/login/", data=fields, headers={"Referer": f"{url}/user/login/"}).raise_for_status()
        client.get("/api/current-user/whoami").raise_for_status()
        client.headers["X-CSRFToken"] = client.cookies["csrftoken"]
        yield client


def asked(client: httpx.Client, *, queue_title: str) -> list[ShownTask]:
    """Return the tasks of a queue in the order in which they are shown."""
    projects = _pages(client, "/api/projects/", {"include": "id,title"}, key="results")
    (project,) = [row["id"] for row in projects if row["title"] == queue_title]
    fields = "id,meta,total_annotations,cancelled_annotations"
    rows = _pages(client, "/api/tasks", {"project": str(project), "include": fields}, key="tasks")
    return [_asked(row) for row in sorted(rows, key=lambda row: int(row["id"]))]


def _pages(client: httpx.Client, path: str, query: Mapping[str, str], *, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while True:
        page = len(rows) // PAGE + 1
        found = client.get(path, params={**query, "page": str(page), "page_size": str(PAGE)}).raise_for_status().json()
        rows += found[key]
        if len(found[key]) < PAGE:
            return rows


def _asked(row: Mapping[str, Any]) -> ShownTask:
    record, _, image = str(row["meta"]["item"]).rpartition("/")
    return ShownTask(
        id=int(row["id"]),
        item=(record, int(image)),
        disputed=tuple(row["meta"]["disputed"]),
        done=bool(row["total_annotations"] or row["cancelled_annotations"]),
    )


def send(client: httpx.Client, task: ShownTask, values: Values, *, note: str = "", skipped: bool = False) -> None:
    """Submit an answer, or skip; a task that already has an answer gets another one."""
    result: list[dict[str, object]] = [
        {"from_name": key, "to_name": CONTENT, "type": "choices", "value": {"choices": list(chosen)}}
        for key, chosen in values.items()
    ]
    if note:
        result.append({"from_name": NOTE, "to_name": CONTENT, "type": "textarea", "value": {"text": [note]}})
    body = {"result": result, "was_cancelled": skipped, "lead_time": 20.0}
    client.post(f"/api/tasks/{task.id}/annotations/", json=body).raise_for_status()
