"""Every query of the dashboards and alerts names metrics, labels and values that the programs
export.
"""

import json
import re
from typing import Any

import pytest

from extender.service.placing.handovers import DRAIN, PREPARE, SERVE
from tests.monitoring.dashboards import DASHBOARDS
from tests.monitoring.files import RUNBOOKS, alerts, made
from tests.monitoring.promql import Unknown, check
from tests.support.families import PROCESS, families, webhook_families

NONE: frozenset[str] = frozenset()
PROCESS_SERIES = {
    name if name.endswith("_bytes") or "fds" in name or "time" in name else f"{name}_total": NONE
    for name in PROCESS
}
QUERIES = [
    pytest.param(query.expr, id=f"{name}: {panel.title} {index}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard.panels()
    for index, query in enumerate(panel.queries)
]


@pytest.mark.parametrize("expr", QUERIES)
def test_a_panel_asks_for_what_there_is(expr: str):
    check(expr, [*families(), *webhook_families()], PROCESS_SERIES)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_asks_for_what_there_is(alert: dict[str, Any]):
    check(alert["expr"], [*families(), *webhook_families()], PROCESS_SERIES)


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_a_variable_offers_a_label_that_there_is(dashboard):
    for metric, label in dashboard.variables.values():
        check(f"sum by ({label}) ({metric})", families(), {})


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        ("rate(vreplica_scheduler_no_such_total[5m])", "no metric of ours"),
        ("vreplica_scheduler_moves", "no metric of ours"),
        ('vreplica_scheduler_moves_total{kind="Drain"}', "no label kind"),
        ('vreplica_scheduler_moves_total{reason="Drained"}', "no reason=Drained"),
        ('vreplica_scheduler_moves_total{reason=~"Drain|Whim"}', "no reason=Whim"),
        ("sum by (kind) (vreplica_scheduler_moves_total)", r"labels \['kind'\]"),
        ("sum(5)", "no metric is named"),
        ("summ(vreplica_scheduler_moves_total)", "summ is no metric"),
        ("vreplica_scheduler_moves_total ?", "is not understood"),
    ],
)
def test_the_check_finds_what_there_is_not(expr: str, why: str):
    with pytest.raises(Unknown, match=why):
        check(expr, families(), {})


@pytest.mark.parametrize("path", list(made()), ids=lambda path: "-".join(path.parts[-3:]))
def test_what_is_made_is_what_is_committed(path):
    assert path.read_text() == made()[path], "python -m tests.monitoring"


@pytest.mark.parametrize("name", list(DASHBOARDS))
def test_a_dashboard_is_one_that_grafana_takes(name: str):
    dashboard = json.loads(json.dumps(DASHBOARDS[name].to_json()))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert ids == sorted(set(ids))
    assert dashboard["schemaVersion"] >= 39
    assert len(dashboard["uid"]) <= 40
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert [target["refId"] for target in panel["targets"]] == list("ABC")[
                : len(panel["targets"])
            ]
            assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_is_wrong_and_its_runbook_what_to_do(alert: dict[str, Any]):
    name = alert["alert"]
    assert re.fullmatch(r"VReplica[A-Za-z]+", name)
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert alert["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
    text = RUNBOOKS.read_text()
    assert f"\n## {name}\n" in text
    section = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    for heading in ("**What it means.**", "**Look.**", "**Do.**"):
        assert heading in section, f"{name}: {heading}"


def test_the_alert_on_hand_overs_and_its_runbook_tell_of_every_step_that_can_time_out():
    (alert,) = [one for one in alerts() if one["alert"] == "VReplicaHandOverTimesOut"]
    section = RUNBOOKS.read_text().split(f"\n## {alert['alert']}\n", 1)[1].split("\n## ", 1)[0]
    for step in (PREPARE, SERVE, DRAIN):
        assert f"({step})" in alert["annotations"]["description"]
        assert f"`{step}`:" in section


def test_every_runbook_belongs_to_an_alert():
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()]


def test_every_metric_of_the_alerts_is_one_that_a_panel_shows():
    shown = " ".join(
        query.expr for d in DASHBOARDS.values() for p in d.panels() for query in p.queries
    )
    for alert in alerts():
        for family in [*families(), *webhook_families()]:
            if family.name in alert["expr"]:
                assert family.name in shown, (
                    f"{alert['alert']} asks for {family.name}, which no panel shows"
                )
