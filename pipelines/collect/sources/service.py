"""Provide what the live sources share: the user agent, the address check and the errors for HTTP statuses."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from pipelines.errors import BadParams, SourceError, SourceRefused, SourceThrottled, SourceUnavailable

# Ours: the wait after a 429 without a time, a tenth of Reddit's window of ten minutes.
DEFAULT_WAIT_SECONDS = 60.0


class SubredditClosed(SourceRefused):
    """Reddit does not show this subreddit (it is private, banned or unknown), so its posts cannot be checked."""


def user_agent(contact: str) -> str:
    """Return the user agent of the live sources in the form that Reddit's API rules require.

    Raises:
        BadParams: no contact is set.
    """
    if not contact:
        raise BadParams(where="CORPUS_CONTACT", detail="not set; a live source must send a contact address")
    return f"python:crisis-corpus:v1 (research; {contact})"


def check_address(address: str, *, setting: str) -> str:
    """Normalise a server's address, and reject an address to which credentials must not be sent.

    Raises:
        BadParams: the address is neither https nor http to this machine.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise BadParams(where=setting, detail="neither https nor a loopback address")
    return address.rstrip("/")


def refusal(source: str, *, status: int, headers: Mapping[str, str], what: str) -> SourceError:
    """Return the error for an HTTP status; its class determines whether a retry may help."""
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
