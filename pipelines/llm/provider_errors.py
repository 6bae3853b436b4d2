"""Errors of a provider that a later request may not meet."""

from __future__ import annotations

from typing import ClassVar

from pipelines.errors import LabellingError


class Throttled(LabellingError):
    """The provider asks to wait; ``retry_after`` in seconds, ``None`` where it did not say how long."""

    message = "The provider asks to wait."
    remedy = "The runner waits and asks again."
    exit_code: ClassVar[int] = 75

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next request."""
        value: float | None = self.fields["retry_after"]
        return value


class Passing(LabellingError):
    """No answer, for a reason that may pass: one machine word (``timeout``, ``connection``, ``server`` ...)."""

    message = "The provider gave no answer: {reason}."
    remedy = "The runner asks again."
    exit_code: ClassVar[int] = 75

    @property
    def reason(self) -> str:
        """The machine word."""
        return str(self.fields["reason"])
