"""The files under manifests/monitoring that are made, and what is in them."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from tests.monitoring.dashboards import DASHBOARDS

FOLDER: Final = Path(__file__).parents[2] / "manifests" / "monitoring"
ALERTS: Final = FOLDER / "alerts.yaml"
RULE: Final = FOLDER / "prometheusrule.yaml"
CHARTS: Final = FOLDER.parent / "helm" / "vreplica-scheduler" / "files"
"""What the chart brings of it: a chart may read no files but its own."""
RUNBOOKS: Final = FOLDER.parents[1] / "docs" / "runbooks.md"


def groups() -> list[dict[str, Any]]:
    """The groups of alerts.yaml, a Prometheus rule file."""
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return found


def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in groups() for rule in group["rules"]]


def made() -> dict[Path, str]:
    """Path -> text of every file that is made."""
    dashboards = {
        f"{name}.json": json.dumps(dashboard.to_json(), indent=2) + "\n"
        for name, dashboard in DASHBOARDS.items()
    }
    return {
        **{FOLDER / "dashboards" / name: text for name, text in dashboards.items()},
        **{CHARTS / "dashboards" / name: text for name, text in dashboards.items()},
        CHARTS / "alerts.yaml": ALERTS.read_text(),
        RULE: _rule(),
    }


def _rule() -> str:
    """The alerts for the Prometheus operator."""
    head = "# Made from alerts.yaml by python -m tests.monitoring.\n"
    labels = {"app.kubernetes.io/part-of": "vreplica-scheduler"}
    return head + yaml.safe_dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": "vreplica-scheduler",
                "namespace": "vreplica-system",
                "labels": labels,
            },
            "spec": {"groups": groups()},
        },
        sort_keys=False,
        width=120,
    )
