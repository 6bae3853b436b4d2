"""A server on loopback that takes OTLP over HTTP, as a collector does, and reads it with OpenTelemetry's messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.json_server import QuietHandler, serving

Sent = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Receiver:
    """What arrived: the path and body of each request. ``status`` is what the next requests get."""

    address = ""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.status = 200

    def metrics(self) -> Iterator[tuple[Any, Any]]:
        """Yield the resource and the metric of every request."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        for path, body in self.bodies:
            assert path == "/v1/metrics"
            for of in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of.scope_metrics:
                    yield from ((of.resource, metric) for metric in scope.metrics)

    def sums(self) -> Sent:
        """Return what a receiver of deltas has counted, by name and attributes; of gauges, the last value."""
        found: Sent = {}
        for _, metric in self.metrics():
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points:
                key = metric.name, frozenset((one.key, one.value.string_value) for one in point.attributes)
                value = point.as_double or point.as_int
                found[key] = value + (found.get(key, 0) if kind == "sum" else 0)
        return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            made.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(made.status)
            self.end_headers()

    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OTEL_")}
    try:
        with serving(Handler) as made.address:
            yield made
    finally:
        os.environ |= hidden
