"""What the live sources share: who they say they are, where they may send, and what a refusal means."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from pipelines.errors import BadParams, SourceError, SourceRefused, SourceThrottled, SourceUnavailable

# Reddit's window is ten minutes; a 429 that names no time gets a tenth of it (ours).
DEFAULT_WAIT_SECONDS = 60.0


class SubredditClosed(SourceRefused):
    """Reddit does not show this subreddit: it is private, banned or unknown. That says nothing of its posts."""


def user_agent(contact: str) -> str:
    """Return the name under which a live source asks, in the form Reddit's API rules want it.

    Raises:
        BadParams: nobody to turn to is named.
    """
    if not contact:
        raise BadParams(where="CORPUS_CONTACT", detail="not set; a live source must say whom to turn to")
    return f"python:crisis-corpus:v1 (research; {contact})"


def check_address(address: str, *, setting: str) -> str:
    """Return the address without a final slash if credentials may be sent there: https, or http to this machine.

    Raises:
        BadParams: anything else.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise BadParams(where=setting, detail="neither https nor a loopback address")
    return address.rstrip("/")


def refusal(source: str, *, status: int, headers: Mapping[str, str], what: str) -> SourceError:
    """Return the error that an HTTP status stands for, by what a retry would change."""
    if status == 429:
        return SourceThrottled(source=source, retry_after=_wait(headers))
    if status >= 500 or status == 408:
        return SourceUnavailable(source=source, detail=f"HTTP {status} for {what}")
    return SourceRefused(source=source, detail=f"HTTP {status} for {what}")


def _wait(headers: Mapping[str, str]) -> float:
    for name in ("retry-after", "x-ratelimit-reset"):
        try:
            return max(1.0, float(headers[name]))
        except (KeyError, ValueError):
            continue
    return DEFAULT_WAIT_SECONDS


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
