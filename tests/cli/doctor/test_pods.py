"""Of adapter pods: schedulers, stamps, slots."""

import pytest

from extender.model.ledger import Share, decode_ledger, encode_ledger
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from tests.cli.doctor.breaking import BROKEN, E, W, add, assert_found_alone, set_on_first, unbound
from tests.cli.doctor.scene import Obj, Scene, a_pod

NO_SUCH_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/3 nodes are available: 3 Insufficient vreplica.dev/slots.",
}


def requesting(pod: Obj) -> Obj:
    """As the webhook stamps it with ``slotsResource``."""
    pod["spec"]["containers"] = [
        {"name": "c", "resources": {"requests": {"vreplica.dev/slots": "20"}}}
    ]
    return pod


def over_its_cpu(scene: Scene) -> None:
    scene.first("adapterpools")["spec"]["capacities"] = {"cpu": 2}
    annotations = scene.first("pods")["metadata"]["annotations"]
    ledger = decode_ledger(annotations[PLACEMENTS_ANNOTATION])
    hungry = {key: Share(share.vreplicas, 1, (("cpu", 1),)) for key, share in ledger.items()}
    annotations[PLACEMENTS_ANNOTATION] = encode_ledger(hungry)


ROWS = [
    pytest.param(
        add("pods", unbound(60)),
        "kube-scheduler",
        E,
        "no scheduler named 'vreplica-scheduler' has looked",
        id="nobody schedules",
    ),
    pytest.param(
        add(
            "pods",
            unbound(
                60, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
            ),
        ),
        "kube-scheduler",
        W,
        "0/3 nodes",
        id="no node fits",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", "vreplica.dev/unschedulable", value="yes"),
        "drain-marks",
        W,
        "vreplica.dev/unschedulable is 'yes', which is no bool",
        id="a mark that drains nothing",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", SLOTS_ANNOTATION, value=None),
        "stranded-pods",
        E,
        "no annotation",
        id="not stamped",
    ),
    pytest.param(
        add("pods", requesting(a_pod(2))),
        "slots-resource",
        W,
        "1 of 3 adapter pods request vreplica.dev/slots",
        id="of both ways",
    ),
    pytest.param(
        add("pods", requesting(unbound(5, conditions=[NO_SUCH_NODE]))),
        "slots-resource",
        E,
        "waits for a node that offers",
        id="no node offers it",
    ),
    pytest.param(
        set_on_first("pods", "spec", "schedulerName", value="other"),
        "stranded-pods",
        W,
        "was bound by 'other'",
        id="another scheduler's",
    ),
    pytest.param(
        set_on_first("adapterpools", "spec", "slotsPerPod", value=2),
        "overcommit",
        E,
        "carries 3 slots, its pool gives it 2",
        id="over its slots",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", SLOTS_ANNOTATION, value="2"),
        "overcommit",
        E,
        "carries 3 slots, it was made with 2",
        id="over its own slots, fewer than its pool's",
    ),
    pytest.param(
        over_its_cpu,
        "overcommit",
        E,
        "carries 3 cpu, its pool gives it 2",
        id="over its cpu",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value="x"),
        "overcommit",
        E,
        "cannot be read",
        id="no ledger",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def test_a_drain_mark_that_is_no_bool_is_told():
    pod = unbound(60)
    pod["metadata"].setdefault("annotations", {})["vreplica.dev/unschedulable"] = "yes"
    scene = Scene()
    scene.items("pods").append(pod)
    results = scene.results()
    assert "vreplica.dev/unschedulable is 'yes', which is no bool" in results["drain-marks"].summary
