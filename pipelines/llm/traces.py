"""Record each request to a provider as a span of an MLflow trace: no prompt, no answer, nothing that names a record.

A trace is one call of :meth:`pipelines.llm.asking.Asking.gather`, such as a labeller's shard. Requests are noted in
memory while they are sent, and written to MLflow together when all have ended, so that they wait for no server.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipelines.core.process import now
from pipelines.core.telemetry import ADDRESSES

# Spans of a trace; further requests are counted in its figures only. Ours: MLflow's page shows a trace as a whole.
MOST = 500
EXPERIMENT = "labelling"
ONE_REQUEST = {
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "true",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": str(MOST + 1),
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_INTERVAL_MILLIS": "60000",
    # seconds that a server which does not answer may cost
    "MLFLOW_ASYNC_TRACE_LOGGING_RETRY_TIMEOUT": "30",
}
ANSWERED, REFUSED = "answered", "refused"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request with all its tries: its outcome in a word, and what it cost.

    ``outcome`` is ``answered``, ``refused``, or the reason why there is no answer, such as ``timeout``.
    """

    began: datetime
    ended: datetime
    outcome: str
    tries: int
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0

    @property
    def attributes(self) -> dict[str, Any]:
        """What a span shows of the request."""
        seconds = round((self.ended - self.began).total_seconds(), 3)
        return {"outcome": self.outcome, "tries": self.tries, "seconds": seconds, "usd": self.usd}


@dataclass
class Trace:
    """The requests of one labeller or system, which :meth:`send` writes to an MLflow server.

    Args:
        about: what identifies the requests: names, counts and digests.
    """

    uri: str
    about: dict[str, str]
    began: datetime = field(default_factory=now)
    calls: list[TracedRequest] = field(default_factory=list)

    def send(self, name: str) -> None:
        """Write the trace if a request was sent; a server that does not answer is a warning, not an error."""
        if self.calls:
            try:
                with _of_mlflow_only():
                    _write(self, name=name)
            except Exception as error:  # answers are stored and paid for, whatever becomes of their trace
                log.warning(
                    "The trace of %d requests was not written to MLflow (%s).", len(self.calls), type(error).__name__
                )
            self.calls.clear()

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of all requests."""
        outcomes = Counter(call.outcome for call in self.calls)
        return {
            "requests": len(self.calls),
            "tries": sum(call.tries for call in self.calls),
            "usd": round(sum(call.usd for call in self.calls), 6),
            **{f"outcome.{outcome}": count for outcome, count in sorted(outcomes.items())},
        }


@contextmanager
def _of_mlflow_only() -> Iterator[None]:
    """Hide the addresses of metrics: MLflow would send the traces there in place of its server, and metrics of them."""
    hidden = {name: os.environ.pop(name) for name in ADDRESSES if name in os.environ}
    try:
        yield
    finally:
        os.environ |= hidden


def _write(trace: Trace, *, name: str) -> None:
    # in one request: MLflow's default is one for each span, and 400 of them took a minute
    os.environ |= ONE_REQUEST
    import mlflow
    from mlflow.entities import SpanType
    from mlflow.tracing.constant import SpanAttributeKey

    mlflow.set_tracking_uri(trace.uri)
    experiment = mlflow.set_experiment(EXPERIMENT).experiment_id
    root = mlflow.start_span_no_context(
        name, SpanType.CHAIN, attributes={**trace.about, **trace.figures}, tags=trace.about, experiment_id=experiment,
        start_time_ns=_ns(trace.began),
    )  # fmt: skip
    for number, call in enumerate(trace.calls[:MOST], start=1):
        span = mlflow.start_span_no_context(
            f"request {number}: {call.outcome}", SpanType.CHAT_MODEL, parent_span=root, attributes=call.attributes,
            start_time_ns=_ns(call.began),
        )  # fmt: skip
        used = (call.input_tokens, call.output_tokens)
        span.set_attribute(
            SpanAttributeKey.CHAT_USAGE, {"input_tokens": used[0], "output_tokens": used[1], "total_tokens": sum(used)}
        )
        span.set_status("OK" if call.outcome == ANSWERED else "ERROR")
        span.end(end_time_ns=_ns(call.ended))
    root.end(end_time_ns=_ns(max(call.ended for call in trace.calls)))
    # now: a process that was forked for one command ends without the handlers that write what is queued
    mlflow.flush_trace_async_logging()


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
