"""Require a key and a consent before a connection to a provider is opened, and know the providers' own addresses."""

from __future__ import annotations

from pipelines.core.config.label import Consent, on_this_machine
from pipelines.core.config.settings import Endpoint
from pipelines.core.process import now

# the providers' own addresses, fixed so that no environment variable of the SDKs can send posts elsewhere
ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
# sent where no key is set: the SDKs require one
NO_KEY = "none"


def admit(endpoint: Endpoint, *, consent: Consent, provider: str) -> None:
    """Check that items may be sent to a provider today; every client calls this before it opens a connection.

    The day is that on which items are sent, which for a retried task is not the day of its run.

    Raises:
        ProviderNotConsented: the provider is not on this machine, and no complete, current consent is on record.
    """
    if not on_this_machine(endpoint.url):
        consent.check(provider, today=now().date())
