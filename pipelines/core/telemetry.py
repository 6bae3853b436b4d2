"""Count the work of commands as OpenTelemetry metrics, without ids or content.

A command collects its counts in memory and sends them once, so that nothing waits for a server meanwhile, and a process
without ``OTEL_EXPORTER_OTLP_ENDPOINT`` imports nothing. Counters are deltas: many short processes of several hosts
count together, and the receiver adds them up. A process that is killed sends nothing.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines.core.errors import name_of

# OpenTelemetry's own variables; the first is of metrics only.
ADDRESSES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE = "crisis-corpus"
# Seconds that a server which does not answer costs at the end of a command; ours.
SECONDS = 3.0
# Names of corpora, stages, labellers and reasons. Other values, such as an id, are not sent.
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,47}")
ID = re.compile(r"[0-9a-f]{16}")
OTHER = "other"
NOT_SENT = "The counts of this command were not sent as metrics ({cause}).\n"


@dataclass(frozen=True)
class Metric:
    """A metric: its meaning, the names of its attributes, and whether it is a counter or the gauge of a state."""

    about: str
    attributes: tuple[str, ...] = ()
    counter: bool = True


METRICS: Mapping[str, Metric] = {
    "corpus.stage.tasks": Metric("ended tasks of stages and steps", ("stage", "outcome")),
    "corpus.records.collected": Metric("records that a month's collection kept", ("corpus",)),
    "corpus.items.dropped": Metric("posts and items that a step left out", ("step", "reason")),
    "corpus.pictures.read": Metric("pictures that were fetched and read by OCR", ("corpus",)),
    "corpus.requests": Metric("requests to providers, with all tries, by outcome", ("outcome",)),
    "corpus.takedowns.open": Metric("takedown requests that are not finished", counter=False),
    "corpus.takedowns.done": Metric("finished takedowns", counter=False),
    "corpus.takedowns.oldest_open_hours": Metric("age of the oldest unfinished takedown", counter=False),
    "corpus.budget.spent_usd": Metric("US dollars paid or reserved for labelling", counter=False),
    "corpus.budget.limit_usd": Metric("`votes.budget_usd`", counter=False),
    "corpus.refresh.late_hours": Metric("hours since a read of a listing was due", ("corpus",), counter=False),
}

_values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}


def count(name: str, value: float = 1, **attributes: str) -> None:
    """Add to a counter of :data:`METRICS`, or set a gauge; no effect if no address is set."""
    if not any(map(os.environ.get, ADDRESSES)):
        return
    metric = METRICS[name]
    if set(metric.attributes) != attributes.keys():
        raise KeyError(name, *sorted(attributes))
    key = name, tuple((attribute, _named(attributes[attribute])) for attribute in metric.attributes)
    _values[key] = value + (_values.get(key, 0) if metric.counter else 0)


@contextmanager
def outcome(stage: str) -> Iterator[None]:
    """Count the task of a stage (such as ``dedupe@memes``) or step as ``success``, or ``failed`` if it raises."""
    ended = "failed"
    try:
        yield
        ended = "success"
    finally:
        count("corpus.stage.tasks", stage=stage.partition("@")[0], outcome=ended)


@contextmanager
def sent() -> Iterator[None]:
    """Send what was counted in the block, also if it raises; a fault of the receiver is one line on stderr."""
    try:
        yield
    finally:
        if _values:
            values = dict(_values)
            _values.clear()
            try:
                cause = _send(values)
            except Exception as error:  # no command fails because of its metrics
                cause = name_of(error)
            if cause:
                sys.stderr.write(NOT_SENT.format(cause=cause))


def _named(value: str) -> str:
    return value if NAME.fullmatch(value) and not ID.search(value) else OTHER


def _send(values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> str:
    """Send the values in one request; return the cause if they did not arrive, else an empty string."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import Counter, MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, MetricExportResult
    from opentelemetry.sdk.resources import Resource

    # its messages have the address, which may have a password
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    reader = InMemoryMetricReader(preferred_temporality={Counter: AggregationTemporality.DELTA})
    # without the id of an instance, by which every command would have series of its own
    provider = MeterProvider([reader], Resource({"service.name": SERVICE}), shutdown_on_exit=False)
    meter, instruments = provider.get_meter(SERVICE), dict[str, Any]()
    for (name, attributes), value in values.items():
        metric = METRICS[name]
        if name not in instruments:
            make = meter.create_counter if metric.counter else meter.create_gauge
            instruments[name] = make(name, description=metric.about)
        put = instruments[name].add if metric.counter else instruments[name].set
        put(value, dict(attributes))
    data = reader.get_metrics_data()
    provider.shutdown()
    exporter = OTLPMetricExporter(timeout=SECONDS)
    result = exporter.export(data, timeout_millis=SECONDS * 1000) if data else MetricExportResult.SUCCESS
    exporter.shutdown()
    return "" if result is MetricExportResult.SUCCESS else "the receiver did not take them"
