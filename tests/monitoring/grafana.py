"""Just enough of Grafana's dashboard JSON (schema 39, Grafana 11 and later) to say what a panel
asks and how it is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24
TAGS: Final = ("vreplica-scheduler",)
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


Thresholds: TypeAlias = tuple[tuple[float, str], ...]
"""(from which value on, colour), below the first one: green."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. ``kind``: timeseries, stat, table, heatmap. ``unit``: Grafana's (short, s,
    percentunit, reqps, bytes).
    """

    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False
    thresholds: Thresholds = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and its panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard. ``variables``: name -> (metric, label) whose values it offers."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: dict[str, tuple[str, str]] = field(default_factory=dict)

    def panels(self) -> list[Panel]:
        """All of them."""
        return [panel for row in self.rows for panel in row.panels]

    def to_json(self) -> dict[str, Any]:
        """As Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": list(TAGS),
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "links": [
                {
                    "type": "dashboards",
                    "title": "vreplica-scheduler",
                    "tags": list(TAGS),
                    "asDropdown": True,
                    "keepTime": True,
                }
            ],
            "templating": {
                "list": [
                    _datasource(),
                    *(_variable(name, *of) for name, of in self.variables.items()),
                ]
            },
            "panels": _laid_out(self.rows),
        }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Data source",
    }


def _variable(name: str, metric: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows from the top, panels from the left, wrapped."""
    made: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            made.append(_panel(panel, len(made) + 1, left, top))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return made


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    steps = [
        {"color": "green", "value": None},
        *({"color": c, "value": v} for v, c in panel.thresholds),
    ]
    custom: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {
            "lineWidth": 1,
            "fillOpacity": 25 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
        }
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.kind == "stat":
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value",
            "graphMode": "area",
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "range": panel.kind != "table",
                "instant": panel.kind == "table",
                **({"format": "table"} if panel.kind == "table" else {}),
            }
            for index, query in enumerate(panel.queries)
        ],
    }
