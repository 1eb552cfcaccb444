"""The predicates and priorities of a v1 Policy, on kube-scheduler 1.22 and on the embedded one: the
same pods go to the same nodes, for the same reasons.
"""

from typing import Any

import pytest

from extender.kube.api import NODES, PODS, Obj, PatchType
from tests.e2e.backend import Backend
from tests.e2e.waiting import eventually

SCHEDULED_TIMEOUT_S = 20.0
LABEL = "disk"


def a_policy(**fields: Any) -> Obj:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def priorities(**weights: int) -> Obj:
    return a_policy(
        priorities=[{"name": name, "weight": weight} for name, weight in weights.items()]
    )


def a_pod(name: str, cpu: str, **spec: Any) -> Obj:
    container = {
        "name": "c",
        "image": "registry.example/c:1",
        "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def two_nodes(backend: Backend) -> tuple[str, str, str]:
    """(a node with 5 of its 8 cpu requested and a label, one without, a namespace)."""
    full, free = await backend.add_nodes(2, zones=1)
    labels = {"metadata": {"labels": {LABEL: "ssd"}}}
    await backend.api.patch(NODES, "", full, labels, patch_type=PatchType.MERGE)
    namespace = await backend.namespace()
    await backend.api.create(PODS, namespace, a_pod("there", "5", nodeName=full))
    return full, free, namespace


async def node_of(backend: Backend, namespace: str) -> str:
    """The node that the pod is bound to."""

    async def bound() -> str:
        pod = await backend.api.get(PODS, namespace, "asked")
        return str(pod["spec"].get("nodeName") or "")

    return await eventually(bound, SCHEDULED_TIMEOUT_S, "the pod is bound")


async def why_not(backend: Backend, namespace: str) -> str:
    """What its PodScheduled condition says."""

    async def refused() -> str:
        pod = await backend.api.get(PODS, namespace, "asked")
        conditions = pod.get("status", {}).get("conditions") or ()
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    return await eventually(refused, SCHEDULED_TIMEOUT_S, "the pod is refused")


PREFERS_LABEL = {"labelPreference": {"label": LABEL, "presence": True}}
LACKS_LABEL = {"labelsPresence": {"labels": [LABEL], "presence": False}}
HAS_LABEL = {"labelsPresence": {"labels": [LABEL], "presence": True}}


@pytest.mark.parametrize(
    ("policy", "to_full"),
    [
        pytest.param(priorities(LeastRequestedPriority=1), False, id="the emptier node"),
        pytest.param(priorities(MostRequestedPriority=1), True, id="the fuller node"),
        pytest.param(
            priorities(LeastRequestedPriority=2, MostRequestedPriority=1), False, id="weights"
        ),
        pytest.param(
            priorities(LeastRequestedPriority=1, MostRequestedPriority=2), True, id="more weight"
        ),
        pytest.param(
            a_policy(
                priorities=[
                    {"name": "Ssd", "weight": 2, "argument": PREFERS_LABEL},
                    {"name": "LeastRequestedPriority", "weight": 1},
                ]
            ),
            True,
            id="a preferred label",
        ),
        pytest.param(
            a_policy(predicates=[{"name": "NoSsd", "argument": LACKS_LABEL}], priorities=[]),
            False,
            id="without a label",
        ),
        pytest.param(
            a_policy(
                predicates=[{"name": "Ssd", "argument": HAS_LABEL}],
                priorities=[{"name": "LeastRequestedPriority", "weight": 1}],
            ),
            True,
            id="with a label, whatever the priorities say",
        ),
        pytest.param(a_policy(), False, id="the default sets"),
    ],
)
async def test_a_policy_decides_where_a_pod_goes(backend: Backend, policy: Obj, to_full: bool):
    await backend.start_legacy_scheduler(policy)
    full, free, namespace = await two_nodes(backend)
    await backend.api.create(PODS, namespace, a_pod("asked", "1"))
    chosen = await node_of(backend, namespace)
    assert chosen == (full if to_full else free)


async def test_without_a_predicate_for_resources_a_pod_goes_where_it_does_not_fit(
    backend: Backend,
):
    await backend.start_legacy_scheduler(a_policy(predicates=[], priorities=[]))
    _, _, namespace = await two_nodes(backend)
    await backend.api.create(PODS, namespace, a_pod("asked", "100"))
    assert await node_of(backend, namespace)


@pytest.mark.parametrize(
    ("check_all", "reasons"),
    [
        pytest.param(False, ["2 Insufficient cpu"], id="the first"),
        pytest.param(
            True,
            ["2 Insufficient cpu", "2 node(s) didn't match Pod's node affinity/selector"],
            id="all",
        ),
    ],
)
async def test_all_predicates_are_asked_only_if_the_policy_says_so(
    backend: Backend, check_all: bool, reasons: list[str]
):
    await backend.start_legacy_scheduler(a_policy(alwaysCheckAllPredicates=check_all))
    _, _, namespace = await two_nodes(backend)
    nowhere = a_pod("asked", "100", nodeSelector={"no": "such"})
    await backend.api.create(PODS, namespace, nowhere)
    message = await why_not(backend, namespace)
    assert message.startswith(f"0/2 nodes are available: {', '.join(reasons)}."), message
