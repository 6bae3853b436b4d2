"""Ask Azure AI Content Safety, which moderates and labels nothing."""

from __future__ import annotations

from pipelines.llm.vendor import Vendor


class Azure(Vendor):
    """A resource of Azure AI Content Safety; its address is in ``CORPUS_<PROVIDER>_URL``."""

    resource = "https://RESOURCE.cognitiveservices.azure.com"
    labels = False

    def headers(self, key: str) -> dict[str, str]:
        return {"Ocp-Apim-Subscription-Key": key}
