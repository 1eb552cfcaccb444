"""The alerts in Prometheus itself: ``promtool check rules``, and for each alert when it fires and
when it does not.

promtool evaluates the rules over series that the tests give it, so an expression that parses and
never fires is found here. A row is an alert, what its series are, and the labels with which it is
to fire after two hours, or that it must not.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.build import ControlPlaneUnavailable
from tests.e2e.go_tool import PROMTOOL
from tests.manifests.chart import Values, objects, render
from tests.manifests.tool import ToolUnavailable
from tests.monitoring.dashboards import DASHBOARDS
from tests.monitoring.files import ALERTS, alerts

S, W = "vreplica_scheduler", "vreplica_webhook"
EXPIRY = "certificate_expiry_timestamp_seconds"
UP = {f'{S}_build_info{{instance="a"}}': "1x150"}
WEBHOOK_UP = {f'{W}_caches_synced{{instance="w"}}': "1x150"}
LED = {f'{S}_leader_election_master_status{{instance="a", name="vreplica-scheduler"}}': "1x150"}
WELL = {**UP, **WEBHOOK_UP, **LED}
"""What is there on a day without trouble."""
AT = "120m"
DAY = 86400


@dataclass(frozen=True)
class Row:
    """``series`` replace those of a good day by name, or are added; None takes one away."""

    alert: str
    series: dict[str, str | None]
    labels: dict[str, str] | None = field(default_factory=dict)
    """With which it fires, beside severity; None: it does not fire."""
    id: str = "fires"


def _buckets(metric: str, at: str, labels: str = "") -> dict[str, str | None]:
    """A histogram of which all observations are in the bucket up to ``at``, ten a minute."""
    inner = f"{labels}, " if labels else ""
    return {
        f'{metric}_bucket{{{inner}le="{at}"}}': "0+10x150",
        f'{metric}_bucket{{{inner}le="+Inf"}}': "0+10x150",
    }


def _served(unserved: str, ready: str, pool: str = "ns/p") -> dict[str, str | None]:
    """vreplicas of a pool that nobody serves, and that are served."""
    return {
        f'{S}_pool_unserved_vreplicas{{pool="{pool}"}}': unserved,
        f'{S}_pool_ready_vreplicas{{pool="{pool}"}}': ready,
    }


VERB = f"{S}_framework_extension_point_duration_seconds"
ROWS = [
    Row("VReplicaSchedulerDown", {next(iter(UP)): None, next(iter(LED)): None}),
    Row("VReplicaSchedulerDown", {}, None, "one replica is scraped"),
    Row(
        "VReplicaNoLeader",
        {next(iter(LED)): "0x150"},
        {"name": "vreplica-scheduler"},
    ),
    Row("VReplicaNoLeader", {next(iter(LED)): None}, {}, "nobody has ever led"),
    Row(
        "VReplicaNoLeader",
        {next(iter(UP)): None, next(iter(LED)): None},
        None,
        "there is no replica",
    ),
    Row(
        "VReplicaNoLeader",
        {
            next(iter(LED)): "0x150",
            f'{S}_leader_election_master_status{{instance="b", '
            f'name="vreplica-scheduler"}}': "1x150",
        },
        None,
        "another leads",
    ),
    Row("VReplicaNoLeader", {next(iter(LED)): "1x118 0 1x30"}, None, "a failover"),
    Row(
        "VReplicaTwoLeaders",
        {f'{S}_leader_election_master_status{{instance="b", name="vreplica-scheduler"}}': "1x150"},
        {"name": "vreplica-scheduler"},
    ),
    Row(
        "VReplicaTwoLeaders",
        {
            f'{S}_leader_election_master_status{{instance="b", '
            f'name="vreplica-scheduler.01-of-02"}}': "1x150"
        },
        None,
        "each leads a bucket",
    ),
    Row(
        "VReplicaVerbErrors",
        {
            f'{VERB}_count{{extension_point="bind", status="Error"}}': "0+1x150",
            f'{VERB}_count{{extension_point="bind", status="Success"}}': "0+9x150",
            f'{VERB}_count{{extension_point="filter", status="Success"}}': "0+9x150",
        },
        {"extension_point": "bind"},
    ),
    Row(
        "VReplicaVerbErrors",
        {
            f'{VERB}_count{{extension_point="bind", status="Error"}}': "0+1x150",
            f'{VERB}_count{{extension_point="bind", status="Success"}}': "0+99x150",
        },
        None,
        "one of a hundred",
    ),
    Row(
        "VReplicaVerbSlow",
        _buckets(VERB, "0.2048", 'extension_point="filter"'),
        {"extension_point": "filter"},
    ),
    Row("VReplicaVerbSlow", _buckets(VERB, "0.0064", 'extension_point="filter"'), None, "in 6 ms"),
    Row(
        "VReplicaVerbSlow", _buckets(VERB, "0.2048", 'extension_point="bind"'), None, "bind writes"
    ),
    Row(
        "VReplicaEventLoopBlocked",
        _buckets(f"{S}_event_loop_lag_seconds", "1.0", 'instance="a"'),
        {"instance": "a"},
    ),
    Row(
        "VReplicaEventLoopBlocked",
        _buckets(f"{S}_event_loop_lag_seconds", "0.01", 'instance="a"'),
        None,
        "in time",
    ),
    Row(
        "VReplicaWatchSilent",
        {f'{S}_reflector_silence_seconds{{resource="pods"}}': "0+60x150"},
        {"resource": "pods"},
    ),
    Row(
        "VReplicaWatchSilent",
        {f'{W}_reflector_silence_seconds{{resource="adapterpools"}}': "0+60x150"},
        {"resource": "adapterpools"},
        "of a webhook",
    ),
    Row(
        "VReplicaWatchSilent",
        {f'{S}_reflector_silence_seconds{{resource="pods"}}': "50x150"},
        None,
        "bookmarks come",
    ),
    Row(
        "VReplicaApiLaneFull", {f'{S}_api_waiting{{lane="writes"}}': "500x150"}, {"lane": "writes"}
    ),
    Row(
        "VReplicaApiLaneFull",
        {f'{S}_api_waiting{{lane="writes"}}': "500x115 0 500x30"},
        None,
        "in waves",
    ),
    Row(
        "VReplicaCertificateExpires",
        {f'{S}_{EXPIRY}{{certificate="serving"}}': f"{13 * DAY}x150"},
        {"certificate": "serving"},
    ),
    Row(
        "VReplicaCertificateExpires",
        {f'{S}_client_{EXPIRY}{{client="kube-scheduler"}}': f"{13 * DAY}x150"},
        {"client": "kube-scheduler"},
        "the client's",
    ),
    Row(
        "VReplicaCertificateExpires",
        {f'{S}_{EXPIRY}{{certificate="serving"}}': f"{30 * DAY}x150"},
        None,
        "in a month",
    ),
    Row("VReplicaConfigRefused", {f"{S}_config_last_reload_successful": "0x150"}),
    Row("VReplicaConfigRefused", {f"{S}_config_last_reload_successful": "1x150"}, None, "good"),
    Row("VReplicaVPodsWait", {f"{S}_pending_vpods_oldest_seconds": "0+60x150"}),
    Row(
        "VReplicaVPodsWait", {f"{S}_pending_vpods_oldest_seconds": "300x150"}, None, "five minutes"
    ),
    Row(
        "VReplicaPoolShort",
        {f'{S}_pool_pending_vreplicas{{pool="ns/p"}}': "3x150"},
        {"pool": "ns/p"},
    ),
    Row(
        "VReplicaPoolShort",
        {f'{S}_pool_pending_vreplicas{{pool="ns/p"}}': "3x110 0x40"},
        None,
        "placed",
    ),
    Row(
        "VReplicaGuaranteeNotMet",
        {f'{S}_pool_tenants_below_guarantee{{pool="ns/p", instance="a"}}': "2x150"},
        {"pool": "ns/p"},
    ),
    Row(
        "VReplicaGuaranteeNotMet",
        {f'{S}_pool_tenants_below_guarantee{{pool="ns/p", instance="a"}}': "0x112 1x8 0x30"},
        None,
        "a pod that comes in eight minutes",
    ),
    Row(
        "VReplicaGuaranteeNotMet",
        {
            f'{S}_pool_tenants_below_guarantee{{pool="ns/p", instance="a"}}': "1x115 stale",
            f'{S}_pool_tenants_below_guarantee{{pool="ns/p", instance="b"}}': "_x116 1x34",
        },
        {"pool": "ns/p"},
        "another replica leads by now",
    ),
    Row(
        "VReplicaGuaranteeNotMet",
        {f'{S}_pool_tenants_below_guarantee{{pool="ns/p", instance="a"}}': "0x150"},
        None,
        "all tenants have theirs",
    ),
    Row("VReplicaUnserved", _served("6x150", "94x150"), {"pool": "ns/p"}, "a pod of sixteen"),
    Row("VReplicaUnserved", _served("6x112 0x40", "94x112 100x40"), None, "served again"),
    Row(
        "VReplicaUnserved",
        _served("2x150", "98x150"),
        None,
        "a large pool's rollout, a pod after the other",
    ),
    Row(
        "VReplicaUnserved",
        _served("33x116 0x40", "67x116 100x40"),
        None,
        "three pods' rollout in a few minutes",
    ),
    Row("VReplicaUnserved", _served("0x150", "0x150"), None, "a pool with nothing"),
    Row(
        "VReplicaUnservedForLong",
        _served("2x150", "98x150"),
        {"pool": "ns/p"},
        "one pod of fifty, for hours",
    ),
    Row(
        "VReplicaUnservedForLong",
        _served("2x70 0x80", "98x70 100x80"),
        None,
        "a rollout that has ended",
    ),
    Row(
        "VReplicaPoolUnserved",
        _served("60x150", "40x150"),
        {"pool": "ns/p"},
        "more than half of the pool",
    ),
    Row(
        "VReplicaPoolUnserved",
        _served("9x150", "0x150", "missing"),
        {"pool": "missing"},
        "a pool that is gone",
    ),
    Row("VReplicaPoolUnserved", _served("33x150", "67x150"), None, "one pod of three"),
    Row(
        "VReplicaPoolUnserved",
        _served("100x117 0x40", "0x117 100x40"),
        None,
        "a pool of one pod that restarts",
    ),
    Row(
        "VReplicaPodsPending",
        {f'{S}_pool_pods{{pool="ns/p", state="pending"}}': "1x150"},
        {"pool": "ns/p"},
    ),
    Row(
        "VReplicaPodsPending",
        {f'{S}_pool_pods{{pool="ns/p", state="expected"}}': "1x150"},
        None,
        "to come",
    ),
    Row(
        "VReplicaPlacingFails",
        {
            f'{S}_schedule_attempts_total{{result="error"}}': "0+2x150",
            f'{S}_schedule_attempts_total{{result="scheduled"}}': "0+8x150",
        },
    ),
    Row(
        "VReplicaPlacingFails",
        {
            f'{S}_schedule_attempts_total{{result="unschedulable"}}': "0+2x150",
            f'{S}_schedule_attempts_total{{result="scheduled"}}': "0+8x150",
        },
        None,
        "no room is no error",
    ),
    Row(
        "VReplicaPlacingSlow",
        _buckets(f"{S}_vpod_scheduling_sli_duration_seconds", "10.24", 'attempts="1"'),
    ),
    Row(
        "VReplicaPlacingSlow",
        _buckets(f"{S}_vpod_scheduling_sli_duration_seconds", "10.24", 'attempts="3"'),
        None,
        "waited for pods",
    ),
    Row(
        "VReplicaSourceUnavailable",
        {f'{S}_source_unavailable{{source="kafkasource.sources.knative.dev"}}': "1x150"},
        {"source": "kafkasource.sources.knative.dev"},
    ),
    Row(
        "VReplicaLoadUnavailable",
        {f'{S}_pool_load_unavailable{{pool="a/b"}}': "1x150"},
        {"pool": "a/b"},
    ),
    Row(
        "VReplicaLoadUnavailable",
        {f'{S}_pool_load_unavailable{{pool="a/b"}}': "0x150"},
        None,
        "it answers",
    ),
    Row(
        "VReplicaHandOverTimesOut",
        {f'{S}_handover_timeouts_total{{step="drain"}}': "0x115 4x35"},
        {"step": "drain"},
    ),
    Row(
        "VReplicaHandOverTimesOut",
        {f'{S}_handover_timeouts_total{{step="drain"}}': "0x115 1x35"},
        None,
        "once",
    ),
    Row("VReplicaPodsOvercommitted", {f"{S}_overcommitted_pods": "1x150"}),
    Row("VReplicaPodsOvercommitted", {f"{S}_overcommitted_pods": "0x150"}, None, "none"),
    Row("VReplicaWritesRefused", {f'{S}_refusals_total{{reason="WriteRefused"}}': "0x115 1x35"}),
    Row(
        "VReplicaWritesRefused",
        {f'{S}_refusals_total{{reason="LedgerChanged"}}': "0+9x150"},
        None,
        "races",
    ),
    Row(
        "VReplicaLedgersForged",
        {f'{S}_repairs_total{{kind="ForeignWrite"}}': "0x110 1x40"},
        {"kind": "ForeignWrite"},
    ),
    Row(
        "VReplicaLedgersForged",
        {f'{S}_repairs_total{{kind="PodReactivated"}}': "0+9x150"},
        None,
        "everyday",
    ),
    Row("VReplicaWebhookBypassed", {f'{S}_repairs_total{{kind="WebhookBypassed"}}': "0x110 1x40"}),
    Row("VReplicaWebhookDown", {next(iter(WEBHOOK_UP)): None}),
    Row("VReplicaWebhookDown", {next(iter(WEBHOOK_UP)): "0x150"}, {}, "not ready"),
    Row("VReplicaWebhookDown", {}, None, "ready"),
    Row(
        "VReplicaWebhookRefuses",
        {f'{W}_requests_total{{path="/mutate", result="refused"}}': "0+1x150"},
    ),
    Row(
        "VReplicaWebhookRefuses",
        {f'{W}_requests_total{{path="/mutate", result="patched"}}': "0+1x150"},
        None,
        "reviews",
    ),
    Row(
        "VReplicaWebhookCertificateExpires",
        {f'{W}_{EXPIRY}{{certificate="serving"}}': f"{13 * DAY}x150"},
    ),
    Row(
        "VReplicaWebhookCertificateExpires",
        {f'{W}_{EXPIRY}{{certificate="authority"}}': f"{149 * DAY}x150"},
        {},
        "the authority",
    ),
    Row(
        "VReplicaWebhookCertificateExpires",
        {
            f'{W}_{EXPIRY}{{certificate="serving"}}': f"{30 * DAY}x150",
            f'{W}_{EXPIRY}{{certificate="authority"}}': f"{180 * DAY}x150",
        },
        None,
        "as when all renews",
    ),
]


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return PROMTOOL.ready()
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))


async def _run(program: Path, *arguments: object) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        program,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60.0):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def _expected(row: Row) -> list[dict[str, Any]]:
    """The alert as it fires: its annotations with the labels filled in."""
    if row.labels is None:
        return []
    rule = next(rule for rule in alerts() if rule["alert"] == row.alert)
    labels = row.labels

    def filled(text: str) -> str:
        return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), text)

    annotations = {name: filled(text) for name, text in rule["annotations"].items()}
    return [{"exp_labels": {**rule["labels"], **labels}, "exp_annotations": annotations}]


def _test_of(row: Row) -> dict[str, Any]:
    series = {name: values for name, values in {**WELL, **row.series}.items() if values is not None}
    return {
        "name": f"{row.alert}: {row.id}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": AT, "alertname": row.alert, "exp_alerts": _expected(row)}
        ],
    }


async def test_prometheus_takes_the_rules(promtool: Path):
    code, out = await _run(promtool, "check", "rules", "--lint=all", "--lint-fatal", ALERTS)
    assert code == 0, out
    assert f"{len(alerts())} rules found" in out


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.alert} {row.id}")
async def test_an_alert_fires_when_it_should_and_only_then(
    row: Row, promtool: Path, tmp_path: Path
):
    file = tmp_path / "rules_test.yaml"
    tests = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [_test_of(row)]}
    file.write_text(yaml.safe_dump(tests, sort_keys=False))
    code, out = await _run(promtool, "test", "rules", file)
    assert code == 0, out


def test_every_alert_has_a_row_that_fires():
    fire = {row.alert for row in ROWS if row.labels is not None}
    assert fire == {rule["alert"] for rule in alerts()}


ORDERS: Values = {
    "fullnameOverride": "orders",
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
}
BOTH_UP = {
    f'{name}{{namespace="{namespace}", {more}}}': "1x150"
    for namespace, lease in (("first-ns", "vreplica-scheduler"), ("orders-ns", "orders"))
    for name, more in (
        (f"{S}_build_info", 'instance="a"'),
        (f"{S}_leader_election_master_status", f'instance="a", name="{lease}"'),
        (f"{W}_caches_synced", 'instance="w"'),
    )
}


@pytest.mark.parametrize(
    ("down", "fire"),
    [
        ("orders-ns", {"VReplicaSchedulerDown", "VReplicaWebhookDown"}),
        ("first-ns", set()),
        ("", set()),
    ],
    ids=["its own replicas are down", "those of the other are down", "nothing is down"],
)
async def test_of_two_installations_each_alerts_on_its_own_series(
    down: str, fire: set[str], promtool: Path, tmp_path: Path
):
    try:
        rendered = render(ORDERS, namespace="orders-ns")
    except ToolUnavailable as reason:
        pytest.skip(str(reason))
    (rule,) = [obj for obj in objects(rendered) if obj["kind"] == "PrometheusRule"]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(rule["spec"]))
    code, out = await _run(promtool, "check", "rules", "--lint=all", "--lint-fatal", rules)
    assert code == 0, out
    series = {
        name: "1x5 stale" if down and down in name else values for name, values in BOTH_UP.items()
    }
    outages = ("VReplicaSchedulerDown", "VReplicaNoLeader", "VReplicaWebhookDown")
    tests = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": AT,
                "alertname": alert["alert"],
                "exp_alerts": [
                    {
                        "exp_labels": {**alert["labels"], "namespace": "orders-ns"},
                        "exp_annotations": alert["annotations"],
                    }
                ]
                if alert["alert"] in fire
                else [],
            }
            for group in rule["spec"]["groups"]
            for alert in group["rules"]
            if alert["alert"] in outages
        ],
    }
    file = tmp_path / "rules_test.yaml"
    content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [tests]}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    code, out = await _run(promtool, "test", "rules", file)
    assert code == 0, out


async def test_prometheus_parses_every_query_of_the_dashboards(promtool: Path, tmp_path: Path):
    """As rules that record: Grafana's variables are replaced as Grafana would."""
    expressions = [q.expr for d in DASHBOARDS.values() for p in d.panels() for q in p.queries]
    rules = [
        {
            "record": f"panel:{index}",
            "expr": re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "5m")),
        }
        for index, expr in enumerate(expressions)
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    code, out = await _run(promtool, "check", "rules", file)
    assert code == 0, out
