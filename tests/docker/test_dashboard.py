"""Dashboard and alerts ask for metrics that this Airflow or this project sends, under their names in Prometheus."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import airflow
import yaml

from pipelines.core.telemetry import METRICS as OURS
from tests.otlp_receiver import receiving

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docker" / "grafana" / "dashboard.json").read_text())
METRICS = Path(airflow.__file__).parent / "_shared/observability/metrics/metrics_template.yaml"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text()
# What Prometheus appends to a name of OpenTelemetry: to a counter, and for the unit of Airflow's timers.
SUFFIX = {"counter": "_total", "gauge": "", "timer": "_milliseconds"}
SENT = """
from airflow._shared.observability.metrics.otel_logger import flush_otel_metrics, get_otel_logger
stats = get_otel_logger(conf_interval=60_000)
for kind, name, tags in json.loads(sys.argv[1]):
    how = {"counter": stats.incr, "gauge": lambda *a, **k: stats.gauge(a[0], 1, **k),
           "timer": lambda *a, **k: stats.timing(a[0], 1, **k)}
    how[kind](name, tags=tags)
flush_otel_metrics()
"""


def registered() -> dict[str, dict[str, Any]]:
    """Return Airflow's own list of metrics by the name in Prometheus."""
    known = yaml.safe_load(METRICS.read_text())["metrics"]
    return {f"airflow_{re.sub(r'[.-]', '_', m['name'])}{SUFFIX[m['type']]}": m for m in known}


def expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def asked(prefix: str = "airflow") -> dict[str, set[str]]:
    """Return the metrics of the dashboard with the labels by which it groups them."""
    found: dict[str, set[str]] = {}
    for _, expression in expressions():
        names = re.findall(r"\b(?:airflow|corpus)_\w+", expression)
        assert len(names) == 1, expression
        [name] = names
        if not name.startswith(f"{prefix}_"):
            continue
        by = re.findall(r"by \(([\w, ]+)\)", expression)
        found.setdefault(name, set()).update(*(labels.split(", ") for labels in by))
    return found


def test_every_metric_and_label_is_one_of_airflow() -> None:
    known = registered()
    for name, labels in asked().items():
        assert name in known, f"{name} is no metric of this Airflow: see its metrics_template.yaml"
        assert labels <= set(known[name]["name_variables"]), (name, labels)


def ours() -> dict[str, str]:
    """Return the name in OpenTelemetry of each metric of this project, by the name in Prometheus."""
    return {f"{name.replace('.', '_')}{'_total' if metric.counter else ''}": name for name, metric in OURS.items()}


def test_every_metric_of_this_project_is_shown_by_its_attributes() -> None:
    found = asked("corpus")
    assert found.keys() == ours().keys()
    for name, labels in found.items():
        assert labels <= set(OURS[ours()[name]].attributes), (name, labels)


def test_counters_are_summed_and_states_are_the_last_ones() -> None:
    # a counter is a delta, for which `rate` and `increase` are wrong; a gauge comes once a day or less
    for title, expression in expressions():
        for name in re.findall(r"\bcorpus_\w+", expression):
            how = "sum_over_time" if OURS[ours()[name]].counter else "last_over_time"
            assert f"{how}({name}[" in expression, title


def test_alerts_ask_for_metrics_of_this_project_with_the_limits_of_the_doctor() -> None:
    rules = yaml.safe_load((ROOT / "docker" / "grafana" / "alerts.yaml").read_text())["groups"][0]["rules"]
    by_name = {rule["alert"]: rule["expr"] for rule in rules}
    for name, expression in by_name.items():
        found = re.findall(r"\bcorpus_\w+", expression)
        assert found and set(found) <= ours().keys(), name
        for metric in found:
            how = "sum_over_time" if OURS[ours()[metric]].counter else "last_over_time|absent_over_time"
            assert re.search(rf"({how})\({metric}[{{\[]", expression), name
    limits = yaml.safe_load((ROOT / "params.yaml").read_text())["doctor"]
    for name, limit in {
        "TakedownPastItsDeadline": f"> {limits['takedown_hours']}",
        "BudgetNearlySpent": f"> {limits['budget_share']} *",
        "LateRefresh": f"> {limits['refresh_hours']}",
    }.items():
        assert limit in by_name[name], name


def test_the_page_of_operations_names_every_metric_with_its_attributes() -> None:
    rows = re.findall(r"^\| `(corpus\.[\w.]+)` \| (\w+) \| (.*?) \|", OPERATIONS, re.MULTILINE)
    assert {name: (kind, re.findall(r"`(\w+)`", attributes)) for name, kind, attributes in rows} == {
        name: ("counter" if metric.counter else "gauge", list(metric.attributes)) for name, metric in OURS.items()
    }


def test_every_option_of_the_page_is_one_of_airflow() -> None:
    options = yaml.safe_load((Path(airflow.__file__).parent / "config_templates" / "config.yml").read_text())
    for section, option in re.findall(r"AIRFLOW__([A-Z]+)__([A-Z_]+)=", PAGE):
        assert not options[section.lower()]["options"][option.lower()].get("version_deprecated"), option


def test_durations_are_read_as_native_histograms() -> None:
    for title, expression in expressions():
        assert ("histogram_" in expression) == ("_milliseconds[" in expression), title
        assert "_bucket" not in expression, title


def test_airflow_sends_them_with_these_labels_to_the_address_of_the_page(tmp_path: Path) -> None:
    known = registered()
    given = [(known[n]["type"], known[n]["name"], dict.fromkeys(labels, "x")) for n, labels in asked().items()]
    options = dict(re.findall(r"^ *export (\w+)=(\S+)$", PAGE, re.MULTILINE))
    assert options["OTEL_EXPORTER_OTLP_ENDPOINT"].startswith("http") and options["AIRFLOW__METRICS__OTEL_ON"] == "True"
    options = {name: value for name, value in options.items() if name.startswith(("OTEL_", "AIRFLOW__"))}
    env = {**os.environ, **options, "AIRFLOW_HOME": str(tmp_path)}
    argv = [sys.executable, "-c", f"import json, sys\n{SENT}", json.dumps(given)]
    sent = {}
    with receiving() as receiver:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.address
        subprocess.run(argv, env=env, check=True, capture_output=True, timeout=120)
        for _, metric in receiver.metrics():
            kind = metric.WhichOneof("data")
            points = getattr(metric, kind).data_points
            sent[metric.name] = kind, metric.unit, {a.key for point in points for a in point.attributes}
    kinds = {"counter": ("sum", ""), "gauge": ("gauge", ""), "timer": ("exponential_histogram", "ms")}
    for kind, name, tags in given:
        assert sent[f"airflow.{name}"] == (*kinds[kind], set(tags)), name
