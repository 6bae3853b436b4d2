"""Require a key and a consent before a connection to a provider is opened, and know the providers' own addresses."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.core.config.label import Api, Consent, on_this_machine
from pipelines.core.config.settings import Endpoint
from pipelines.core.errors import LabellerRefused
from pipelines.core.process import now

# the providers' own addresses, fixed so that no environment variable of the SDKs can send posts elsewhere
ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
# sent where no key is set: the SDKs require one
NO_KEY = "none"


@dataclass(frozen=True)
class Target:
    """The provider, labeller and protocol of a request, on which error messages and its decoding depend."""

    labeller: str
    provider: str
    api: Api

    def refused(self, detail: str) -> LabellerRefused:
        """Return the error that ends the labeller's run: the provider rejects its requests, because of ``detail``."""
        variable = self.provider.upper().replace("-", "_")
        return LabellerRefused(labeller=self.labeller, detail=detail, provider=variable)


def admit(endpoint: Endpoint, *, consent: Consent, provider: str) -> None:
    """Check that items may be sent to a provider today; every client calls this before it opens a connection.

    The day is that on which items are sent, which for a retried task is not the day of its run.

    Raises:
        ProviderNotConsented: the provider is not on this machine, and no complete, current consent is on record.
    """
    if not on_this_machine(endpoint.url):
        consent.check(provider, today=now().date())
