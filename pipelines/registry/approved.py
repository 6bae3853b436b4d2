"""Hand the decision of an authenticated user from the task that asked for it to the task that carries it out.

Users of Airflow can change what tasks hand over, so the decision is authenticated with the project secret. It is valid
in one run, for one subject such as ``promote crisis-posts 2``, and for the answer that was given.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from pipelines.errors import RegistryError
from pipelines.registry.journal import ANONYMOUS, signed
from pipelines.vault.keyring import derive

# The person of a rejection because of a question that was not answered in time.
NO_ANSWER = "no answer"


class DecisionRefused(RegistryError):
    """A decision was not made by an authenticated user, or not about this."""

    message = "The decision cannot be carried out: {detail}."
    remedy = "Nothing was changed. Start the run again, and answer as a user who has logged in to Airflow."
    exit_code = 77


class SamePerson(RegistryError):
    """A decision that takes two persons was made by one, or the first person is unknown."""

    message = "Four eyes are required, and {who} has asked for this decision already, or the first person is unknown."
    remedy = "Nothing was changed. Let another person decide; `four_eyes` in params.yaml requires it."
    exit_code = 77


@dataclass(frozen=True)
class ApprovalRecord:
    """A decision.

    Args:
        run: the run in which the question was asked.
        subject: what the question was about.
        yes: whether the answer was yes.
        who: the user who answered.
        why: their reason.
        asked_by: the user who started the run, if any.
    """

    run: str
    subject: str
    yes: bool
    who: str
    why: str
    asked_by: str | None

    @classmethod
    def answered(cls, *, user: str | None, asked_by: str | None, **given: Any) -> ApprovalRecord:
        """Return the decision of a user of Airflow; ``None`` means that there was no answer in time.

        Raises:
            DecisionRefused: the user is anonymous, or a yes has no user.
        """
        if user is None and not given["yes"]:
            return cls(who=NO_ANSWER, asked_by=None, **given)
        if user is None or user.strip().casefold() in ANONYMOUS:
            raise DecisionRefused(detail="the answer came from a user who was not logged in")
        return cls(who=f"airflow:{user}", asked_by=f"airflow:{asked_by}" if asked_by else None, **given)

    def token(self, secret: bytes) -> dict[str, Any]:
        """Return this decision as JSON values with a message authentication code."""
        return asdict(self) | {"mac": _mac(asdict(self), secret)}

    @classmethod
    def verified(cls, text: str, secret: bytes, *, run: str, subject: str, yes: bool) -> ApprovalRecord:
        """Return the decision in a token.

        Raises:
            DecisionRefused: the token was changed, or is of another run, subject or answer.
        """
        try:
            values = json.loads(text)
            mac = values.pop("mac")
            found = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise DecisionRefused(detail="it is not a decision of this project") from None
        if not hmac.compare_digest(str(mac).encode(), _mac(values, secret).encode()):
            raise DecisionRefused(detail="it was changed after the answer")
        if (found.run, found.subject, found.yes) != (run, subject, yes):
            raise DecisionRefused(detail="the answer was another one, in another run, or about something else")
        signed(found.who, found.why)
        return found


def require_two(who: str, *, asked_by: str | None) -> None:
    """Check that two persons took part.

    Raises:
        SamePerson: they are the same, or the first is unknown.
    """
    if not asked_by or _login(who) == _login(asked_by):
        raise SamePerson(who=who)


def _login(who: str) -> str:
    """Return the login in ``ada (os:ada)``, or all of ``airflow:ada``."""
    return who.rpartition("(")[2].removesuffix(")")


def _mac(values: dict[str, Any], secret: bytes) -> str:
    key = derive(secret, purpose="approval", length=32)
    return hmac.new(key, json.dumps(values, sort_keys=True).encode(), sha256).hexdigest()
