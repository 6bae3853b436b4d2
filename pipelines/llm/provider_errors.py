"""Define the errors of a provider after which a later request may succeed."""

from __future__ import annotations

from typing import ClassVar

from pipelines.errors import LabellingError


class Throttled(LabellingError):
    """The provider asks the client to wait; ``retry_after`` in seconds, ``None`` if it did not say how long."""

    message = "The provider asks the client to wait before the next request."
    remedy = "Wait: the runner repeats the request by itself."
    exit_code: ClassVar[int] = 75

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next request."""
        value: float | None = self.fields["retry_after"]
        return value


class Passing(LabellingError):
    """A temporary failure without an answer; the reason is one word (``timeout``, ``connection``, ``server`` ...)."""

    message = "The provider gave no answer: {reason}."
    remedy = "Wait: the runner repeats the request by itself."
    exit_code: ClassVar[int] = 75

    @property
    def reason(self) -> str:
        """The reason, one machine word."""
        return str(self.fields["reason"])
