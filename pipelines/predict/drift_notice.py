"""Report champions (model versions in use) whose published predictions have drifted: log them, and send webhooks."""

from __future__ import annotations

import sys
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.process import now
from pipelines.registry.journal import Journal
from pipelines.registry.webhook import Watch
from pipelines.store.metrics_file import read_metrics
from pipelines.workspace.clone import workspace


def run(corpus: str, *, settings: Settings) -> dict[str, Any]:
    """Print the months whose predictions drifted, from the published ``batch_predict.json``, and send webhooks.

    A notice that was queued before is not queued again. Failed deliveries are retried by the Dag ``deliver``.

    Returns:
        ``drift``: by model, the drifted quantities by month; ``queued``: the number of new notices; and the counts of
        :meth:`pipelines.registry.webhook.Watch.deliver`, which sends the queued notices.
    """
    with workspace(settings) as clone:
        metrics = read_metrics(clone.path / "metrics" / corpus / "batch_predict.json")
    drifted = {name: model for name, model in metrics.items() if (model.get("drift") or {}).get("exceeded")}
    queued = 0
    with Journal.of(settings, clock=now) as journal:
        watch = Watch.open(journal, clock=now)
        for name, model in drifted.items():
            months = model["drift"]["exceeded"]
            for month, quantities in months.items():
                sys.stderr.write(f"drift: {name}/{model['version']} in {month}: {', '.join(quantities)}\n")
            queued += watch.drift(name, version=model["version"], months=months)
        delivered = watch.deliver()
    exceeded = {name: model["drift"]["exceeded"] for name, model in drifted.items()}
    return {"drift": exceeded, "queued": queued, **delivered}
