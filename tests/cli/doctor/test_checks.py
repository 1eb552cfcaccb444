"""What holds for every check of ``vreplica doctor``, and how the result is told."""

import json

import pytest

from extender.cli.doctor.checks import CHECKS
from extender.cli.doctor.checks.verdict import EVIDENCE_MAX, Verdict
from extender.cli.doctor.examine import examine
from extender.cli.doctor.report import as_document, as_table, exit_status
from tests.cli.doctor import (
    test_adapters,
    test_descheduling,
    test_installation,
    test_ledgers,
    test_pods,
    test_pools,
    test_replica,
    test_shared_pools,
    test_webhooks,
)
from tests.cli.doctor.breaking import empty, unbound, webhook
from tests.cli.doctor.scene import Scene, a_vpod

GROUPS = (
    test_adapters,
    test_descheduling,
    test_installation,
    test_ledgers,
    test_pods,
    test_pools,
    test_replica,
    test_shared_pools,
    test_webhooks,
)


def test_an_installation_that_is_well_is_told_so():
    results = Scene().results()
    absent = {"replica"}  # was not asked
    assert {name: one.verdict for name, one in results.items()} == {
        name: Verdict.SKIPPED if name in absent else Verdict.OK for name in results
    }
    assert not any(one.fix or one.evidence for one in results.values())
    assert exit_status(examine(Scene().facts()), strict=True) == 0


def test_every_check_but_rights_is_broken_by_some_test():
    broken = {row.values[1] for group in GROUPS for row in group.ROWS}
    assert broken == {check.name for check in CHECKS} - {"rights"}


@pytest.mark.parametrize("plural", sorted({plural for check in CHECKS for plural in check.needs}))
def test_what_may_not_be_read_makes_checks_unknown_and_never_guessed(plural):
    scene = Scene()
    scene.listed[plural] = "forbidden: no"
    results = scene.results()
    for check in CHECKS:
        if plural in check.needs:
            assert results[check.name].verdict is Verdict.UNKNOWN
            assert f"{plural}: forbidden: no" in results[check.name].evidence
    assert f"{plural}: forbidden: no" in results["rights"].evidence


def test_evidence_is_bounded_and_says_how_much_more_there_is():
    scene = Scene()
    scene.items("vpods").extend(a_vpod(f"v{n}", 1, {n: 1}) for n in range(10, 40))
    evidence = scene.results()["placements-gone"].evidence
    assert len(evidence) == EVIDENCE_MAX + 1
    assert evidence[-1] == "and 20 more"


def test_the_table_shows_evidence_and_fix_and_tools_get_the_same():
    scene = Scene()
    scene.items("leases").clear()
    examined = examine(scene.facts())
    table = as_table(examined)
    assert "ERROR    leader" in table
    assert "fix: Look at the logs" in table
    as_json = as_document(examined)
    assert json.loads(json.dumps(as_json)) == as_json
    (leader,) = [check for check in as_json["checks"] if check["name"] == "leader"]
    assert (leader["verdict"], leader["asks"]) == ("error", "Does somebody lead?")
    assert as_json["counts"] == {
        "ok": len(CHECKS) - 2,
        "warning": 0,
        "error": 1,
        "unknown": 0,
        "skipped": 1,
    }


@pytest.mark.parametrize(
    ("broken", "status", "strict"),
    [
        pytest.param(empty("leases"), 1, 1, id="an error"),
        pytest.param(webhook(timeoutSeconds=30), 0, 1, id="a warning"),
        pytest.param(
            lambda s: s.listed.update(secrets="forbidden: no"), 0, 1, id="something unknown"
        ),
        pytest.param(lambda s: None, 0, 0, id="nothing"),
    ],
)
def test_the_exit_status_says_how_bad_it_is(broken, status, strict):
    scene = Scene()
    broken(scene)
    examined = examine(scene.facts())
    assert exit_status(examined, strict=False) == status
    assert exit_status(examined, strict=True) == strict


def test_nothing_that_a_tenant_writes_begins_a_line_of_its_own():
    scene = Scene()
    pod = unbound(
        60,
        conditions=[
            {"type": "PodScheduled", "status": "False", "message": "x\nok       leader\x1b[2J"}
        ],
    )
    scene.items("pods").append(pod)
    table = as_table(examine(scene.facts()))
    assert len([line for line in table.splitlines() if line.startswith("ok       leader")]) == 1
    assert "\x1b" not in table


def test_on_a_cluster_without_anything_of_ours_nothing_is_called_ok():
    scene = Scene()
    for plural in scene.listed:
        scene.items(plural).clear()
    results = scene.results()
    well = {name for name, one in results.items() if one.verdict is Verdict.OK}
    assert well == {"api-server", "rights"}
    assert "not installed there, or no longer" in results["leader"].summary
    assert "Install the chart" in results["leader"].fix
