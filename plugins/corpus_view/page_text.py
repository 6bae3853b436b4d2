"""Format numbers, times and addresses for the page; text of others is made harmless before it is printed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from markupsafe import Markup

# Longest text of a cell: reasons have 500 characters at most, and the page shows no other prose.
LONGEST = 500
NONE = "–"


def clean(value: Any) -> Any:
    """Return text without control and direction characters, and cut to a cell's length; other values unchanged.

    The template escapes it: this only keeps text from changing the order or look of what is around it.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return "" if value is None else value
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value[: LONGEST + 1])
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}…"


def path(*parts: str) -> str:
    """Return an address in Airflow's interface, relative to the page, which is one level below the root."""
    return "/".join(["..", *(quote(part, safe="") for part in parts)])


def web(address: str | None) -> str | None:
    """Return an address if it is one of the web, else ``None``: never a script or a file."""
    try:
        parts = urlsplit(address or "")
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.hostname else None


def number(value: Any) -> str:
    """Return a count with separators, another number with three decimals at most, and a dash for none."""
    if value is None:
        return NONE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def percent(part: float | None, whole: float | None) -> str:
    """Return a share as a percentage with one decimal, and a dash without a whole."""
    return NONE if part is None or not whole else f"{100 * part / whole:.1f} %"


def money(value: float) -> str:
    """Return US dollars with cents, or more decimals of an amount below a dollar."""
    return f"$ {value:,.2f}" if value >= 1 or not value else f"$ {value:,.4f}"


def moment(value: str | datetime | None) -> datetime | None:
    """Return a time as aware UTC, or ``None`` for text that is none."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def hours(value: float | None) -> str:
    """Return a duration in hours as text: minutes, hours or days."""
    if value is None:
        return NONE
    if value < 1:
        return f"{60 * value:.0f} min"
    return f"{value:.1f} h" if value < 48 else f"{value / 24:.1f} days"


def passed(since: str | datetime | None, until: str | datetime | None = None, *, now: datetime) -> float | None:
    """Return the hours from a time until another, or until now; ``None`` without a time."""
    begun = moment(since)
    return ((moment(until) or now) - begun).total_seconds() / 3600 if begun else None


def ago(value: str | datetime | None, *, now: datetime) -> str:
    """Return how long ago a time was, or how far it is ahead."""
    age = passed(value, now=now)
    if age is None:
        return NONE
    return f"{hours(age)} ago" if age >= 0 else f"in {hours(-age)}"


def interval(figure: Mapping[str, Any]) -> str:
    """Return a figure with its interval."""
    if figure.get("value") is None:
        return "undefined"
    text = f"{figure['value']:.2f}"
    return text if figure.get("low") is None else f"{text} [{figure['low']:.2f}, {figure['high']:.2f}]"


def run_page(run: str | None) -> str | None:
    """Return the address of the Dag run ``<dag>/<run id>`` that a commit names, if it names one."""
    dag, _, run_id = (run or "").partition("/")
    return path("dags", dag, "runs", run_id) if run_id else None


FILTERS = {shown.__name__: shown for shown in (number, percent, money, moment, hours, web, interval, run_page)}
