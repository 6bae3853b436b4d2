"""Pass an authenticated user's decision from the Airflow task that asked for it to the task that carries it out.

Users of Airflow can change what tasks pass on, so the decision is authenticated with the project secret. It is valid
in one Dag run, for one subject such as ``promote crisis-posts 2``, and for the answer that was given.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from pipelines.core.errors import RegistryError
from pipelines.registry.journal import ANONYMOUS, signed
from pipelines.store.vault.keyring import derive

# The person of a rejection because of a question that was not answered in time.
NO_ANSWER = "no answer"


class SamePerson(RegistryError):
    """A decision that needs two persons was asked for and made by the same one, or the first is unknown."""


@dataclass(frozen=True)
class ApprovalRecord:
    """The decision of a user of Airflow: an answer to the question of a Dag run.

    Args:
        subject: what the question was about, such as ``promote crisis-posts 2``.
    """

    run: str
    subject: str
    yes: bool
    who: str
    why: str
    asked_by: str | None

    @classmethod
    def answered(cls, *, user: str | None, asked_by: str | None, **question: Any) -> ApprovalRecord:
        """Return the decision of a user of Airflow; a ``user`` of ``None`` means that there was no answer in time."""
        if user is None and not question["yes"]:
            return cls(who=NO_ANSWER, asked_by=None, **question)
        if user is None or user.strip().casefold() in ANONYMOUS:
            raise RegistryError("DecisionRefused", detail="the answer came from a user who was not logged in")
        return cls(who=f"airflow:{user}", asked_by=f"airflow:{asked_by}" if asked_by else None, **question)

    def token(self, secret: bytes) -> dict[str, Any]:
        """Return this decision as JSON values with a message authentication code (a token)."""
        return asdict(self) | {"mac": _mac(asdict(self), secret)}

    @classmethod
    def verified(cls, text: str, secret: bytes, *, run: str, subject: str, yes: bool) -> ApprovalRecord:
        """Return the decision in a token, after checking its code and that it is of this run, subject and answer."""
        try:
            values = json.loads(text)
            mac = values.pop("mac")
            record = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RegistryError("DecisionRefused", detail="it is not a decision of this project") from None
        if not hmac.compare_digest(str(mac).encode(), _mac(values, secret).encode()):
            raise RegistryError("DecisionRefused", detail="it was changed after the answer")
        if (record.run, record.subject, record.yes) != (run, subject, yes):
            raise RegistryError(
                "DecisionRefused", detail="the answer was another one, in another run, or about something else"
            )
        signed(record.who, record.why)
        return record


def require_two(who: str, *, asked_by: str | None) -> None:
    """Check that one person asked for a decision (``asked_by``) and another one made it (``who``)."""
    if not asked_by or _login(who) == _login(asked_by):
        raise SamePerson(who=who)


def _login(who: str) -> str:
    return who.rpartition("(")[2].removesuffix(")")


def _mac(values: dict[str, Any], secret: bytes) -> str:
    key = derive(secret, purpose="approval", length=32)
    return hmac.new(key, json.dumps(values, sort_keys=True).encode(), sha256).hexdigest()
