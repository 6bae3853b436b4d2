"""Require a consent on record for every model provider that receives items of a corpus."""

from __future__ import annotations

import ipaddress
from datetime import date
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints

from pipelines.config.base import Section
from pipelines.errors import ConfigError

Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ProviderNotConsented(ConfigError):
    """Items of a corpus may not be sent to a model provider, because no valid consent is on record."""

    message = "No item may be sent to provider '{provider}': {detail}."
    remedy = (
        "Nothing was sent. With `corpus params set`, record under consents.{provider} the terms, retention_days, who "
        "approved them (approved_by), when (approved_on), and an expires date in the future."
    )
    exit_code = 77


class Consent(Section):
    """The consent that one provider may receive items: its terms, its retention, and who approved them and when.

    ``retention_days`` is for how long the provider keeps items (0: not at all); a field that was not stated is
    ``None``.
    """

    terms: Said | None = None
    retention_days: Annotated[int, Field(ge=0)] | None = None
    approved_by: Said | None = None
    approved_on: date | None = None
    expires: date | None = None

    def check(self, provider: str, *, today: date) -> None:
        """Reject a consent that is incomplete or does not cover today."""
        if missing := [name for name in type(self).model_fields if getattr(self, name) is None]:
            detail = f"its consent lacks {', '.join(missing)}"
        elif self.approved_on is not None and self.approved_on > today:
            detail = f"its consent begins on {self.approved_on}"
        elif self.expires is not None and self.expires <= today:
            detail = f"its consent ended on {self.expires}"
        else:
            return
        raise ProviderNotConsented(provider=provider, detail=detail)

    def told(self, provider: str, *, today: date) -> str:
        """Return until when the consent lasts, as "until DATE", or what :meth:`check` finds wrong with it."""
        try:
            self.check(provider, today=today)
        except ProviderNotConsented as error:
            return str(error.fields["detail"])
        return f"until {self.expires}"


def on_this_machine(url: str | None) -> bool:
    """Return whether an address is on the loopback interface, so that nothing that is sent to it leaves the machine."""
    host = urlsplit(url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
