"""What replicas are doing when they are killed: placing, binding, moving, scaling, failing over,
repairing.

A scenario acts on a world and waits until what it asked for has come about, whoever does it. From
``run.arm()`` on kills count.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    VREPLICAQUOTAS,
    Obj,
    Resource,
    TooManyRequests,
)
from extender.lab.clock import wall_clock
from extender.lab.faults import CALM, FaultRates
from extender.lab.simulation.workload.drains import is_rolled_out
from extender.lab.simulation.world.facts import PLACEMENTS
from extender.lab.simulation.world.scale import LOAD_METRIC, NAME, NS, TENANTS, Scale
from extender.model.names import LEASE_NAME, OWN_NAMESPACE, SCHEDULER_NAME
from extender.model.timestamps import timestamp
from extender.service.pools.leadership import SHARE_AFTER_S
from tests.simulation.kill_run import Run

EVICT_AGAIN_S: Final = 5.0
"""As kubectl drain."""
DOUBT_S: Final = 35.0
"""What lost answers leave reserved ends by itself after 30 s."""
KNATIVE: Final = Path(__file__).parents[1] / "contract" / "knative"
GROUPS: Final = Resource(
    "internal.kafka.eventing.knative.dev", "v1alpha1", "consumergroups", "ConsumerGroup"
)
POOL: Final[Mapping[str, Any]] = {
    "scaleDownPeriodSeconds": 5,
    "rebalance": {"movesPerPeriod": 10, "cooldownSeconds": 1},
}


@dataclass(frozen=True)
class Scenario:
    """``play`` acts. ``moves``: whether it asks for moves; none of the others may happen, nor more
    than without a kill. ``again``: but for so many, where what moves may go to a pod that is left
    later.
    """

    name: str
    play: Callable[[Run], Awaitable[None]]
    scale: Scale = field(default_factory=lambda: Scale(nodes=3, slots_per_pod=5, replicas=0))
    moves: frozenset[str] = frozenset()
    again: int = 0


async def _grow(run: Run) -> None:
    run.arm()
    await run.start()
    await run.vpods(3, 3, 3, 3)
    await run.settled()


async def _many(run: Run) -> None:
    """More statuses at once than may be under way."""
    await run.start()
    run.arm()
    await run.vpods(*[1] * 40, weights=(1,))
    await run.settled()


async def _return(run: Run) -> None:
    """Two pods are deleted and come back with what they had; somebody annotates one while it is
    being bound.
    """
    await run.start()
    await run.vpods(3, 3, 3, 3)
    await run.settled()
    run.arm()
    run.when("binder.py", lambda _process: run.meanwhile(run.annotate("dispatcher-0", seen="yes")))
    for name in ("dispatcher-0", "dispatcher-1"):
        await run.world.cluster.delete(PODS, NS, name)
    await asyncio.sleep(0.5)
    await run.settled()


async def _resize(run: Run) -> None:
    """Some shrink, some grow, one goes."""
    await run.start()
    await run.vpods(4, 2, 3)
    await run.settled()
    run.arm()
    await run.resize(0, 2)
    await run.resize(1, 4)
    await run.world.cluster.delete(VPODS, TENANTS[0], "v2")
    await run.settled()


async def _drain(run: Run) -> None:
    await run.start()
    await run.vpods(3, 3, 3)
    await run.settled()
    run.arm()
    await run.annotate("dispatcher-1", **{"vreplica.dev/unschedulable": "true"})
    await asyncio.sleep(0.5)
    await run.settled()


async def _shrink_pool(run: Run) -> None:
    """What two vpods have on the highest of three pods moves down, and the pod is removed."""
    await run.start()
    await run.until(lambda: run.replicas() == 3, "three pods are asked for")
    await run.settled()
    await run.vpods(3, 3, 3, 3, 3, weights=(1,))
    await run.settled()
    run.arm()
    await run.patch(ADAPTERPOOLS, NAME, {"spec": {"minPods": 1}})
    for number in range(2, 5):
        await run.world.cluster.delete(VPODS, TENANTS[number % 2], f"v{number}")
    await run.until(lambda: run.replicas() == 2, "two pods are left")
    await run.settled()


async def _assign(run: Run) -> None:
    """Adapters are told their shares, then others, then none any more."""
    await run.start()
    run.arm()
    await run.vpods(3, 2)
    await run.settled()
    await run.resize(0, 4)
    await run.settled()
    await run.patch(ADAPTERPOOLS, NAME, {"spec": {"handoff": None}})
    await run.settled()


async def _three_adapters(run: Run) -> None:
    """Three pods serve two vpods. All adapters keep the contract."""
    run.world.adapters.calm_down()
    await run.start()
    await run.until(lambda: run.replicas() == 3, "three pods are asked for")
    await run.settled()
    await run.vpods(3, 3, weights=(1,))
    await run.settled()


async def _hand_over(run: Run) -> None:
    """A pod is evicted until it carries nothing, and its adapter has let go."""
    await _three_adapters(run)
    run.arm()
    while True:
        try:
            await run.world.cluster.evict(NS, "dispatcher-1")
        except TooManyRequests:
            await asyncio.sleep(EVICT_AGAIN_S)
        else:
            break
    assert not run.world.adapters.serves("dispatcher-1")
    await asyncio.sleep(0.5)
    await run.settled()


async def _lose_lease(run: Run) -> None:
    """An adapter hangs until its shares are elsewhere, and comes back."""
    await _three_adapters(run)
    run.arm()
    hanging = run.world.adapters.adapter("dispatcher-1")
    assert hanging is not None
    hanging.cut_until = math.inf
    await run.until(lambda: not run.checkers.pods["dispatcher-1"].total, "its work is elsewhere")
    assert run.checkers.exclusive.expired
    hanging.cut_until = -math.inf
    hanging.woken.set()
    await asyncio.sleep(5.0)
    await run.settled()


async def _maintain(run: Run) -> None:
    """A node is cordoned until its pods have left it."""
    await _three_adapters(run)
    run.arm()
    node = run.world.stored(PODS)[NS, "dispatcher-1"]["spec"]["nodeName"]
    await run.patch(NODES, node, {"spec": {"unschedulable": True}}, "")

    def is_left() -> bool:
        pods = run.world.stored(PODS).values()
        return all(pod["spec"].get("nodeName") != node for pod in pods)

    await run.until(is_left, "no pod is on the node")
    await run.patch(NODES, node, {"spec": {"unschedulable": None}}, "")
    await run.settled()


async def _roll_out(run: Run) -> None:
    """The StatefulSet gets another pod template, and its pods are replaced one by one."""
    await _three_adapters(run)
    run.arm()
    template = {"metadata": {"annotations": {"adapters/version": "2"}}}
    await run.patch(STATEFULSETS, NAME, {"spec": {"template": template}})
    await run.until(lambda: is_rolled_out(run.world.stored(STATEFULSETS)[NS, NAME]), "all are new")
    await run.settled()


async def _balance(run: Run) -> None:
    """One of two pods has four vreplicas, and the other none. One of them moves."""
    await run.start()
    await run.until(lambda: run.replicas() == 2, "two pods are asked for")
    await run.settled()
    await run.vpods(1, 1, 1, 1, weights=(1,))
    await run.settled()
    run.arm()
    run.meanwhile(run.report_load())
    await run.until(lambda: bool(run.checkers.pods["dispatcher-1"].total), "one has moved")
    await asyncio.sleep(12.0)
    await run.settled()


async def _failover(run: Run) -> None:
    """The leader gets a SIGTERM while there is work; another takes over."""
    await run.start(replicas=2)
    await run.vpods(3, 3)
    await run.settled()
    run.arm()
    run.when("events.py", lambda _process: run.stop(leader=True))
    await run.resize(0, 5)
    await run.resize(1, 1)
    await asyncio.sleep(5.0)
    await run.settled()


async def _stopped_in_doubt(run: Run) -> None:
    """A SIGTERM while the Lease is being written for the first time."""
    run.arm()
    # It is read first, and written then.
    run.when("leader.py", lambda _process: run.when("leader.py", run.terminate))
    await run.start()
    await run.vpods(3)
    await run.settled()


async def _no_lease(run: Run) -> None:
    """The first leader of all has to make the Lease, once it has waited for one that may have been
    deleted.
    """
    await run.world.cluster.delete(LEASES, OWN_NAMESPACE, LEASE_NAME)
    run.arm()
    await run.start()
    await run.vpods(3)
    await run.settled()


async def _lease_taken(run: Run) -> None:
    """Somebody takes the lease from the leader, and lets it run out; a candidate gets a SIGTERM
    meanwhile.
    """
    await run.start(replicas=2)
    await run.vpods(3, 3)
    await run.settled()
    run.arm()
    spec = {"holderIdentity": "somebody else", "leaseDurationSeconds": 5}
    await run.patch(LEASES, LEASE_NAME, {"spec": spec}, OWN_NAMESPACE)
    await run.resize(0, 5)
    await asyncio.sleep(4.0)
    run.stop(leader=False)
    await asyncio.sleep(10.0)
    await run.settled()


async def _share(run: Run) -> None:
    """A second replica comes, asks for one of two buckets and gets it; each places in its own."""
    await run.start()
    await run.vpods(3, 3, weights=(1,))
    await run.settled()
    run.arm()
    run.join()
    await asyncio.sleep(2 * SHARE_AFTER_S)
    await run.resize(0, 5)
    await run.resize(1, 1)
    await run.settled()


async def _quarantine(run: Run) -> None:
    """Pods crash soon after they got a vpod, which asks for more; a person releases it, twice."""
    await run.start()
    await run.until(lambda: run.replicas() == 2, "two pods are asked for")
    await run.settled()
    await run.vpods(6, weights=(1,))
    await run.settled()
    run.arm()
    for turn in (1, 2):
        container = {
            "name": "adapter",
            "restartCount": turn,
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
        for name in ("dispatcher-0", "dispatcher-1"):
            await run.patch(
                PODS, name, {"status": {"containerStatuses": [container]}}, NS, "status"
            )
        await asyncio.sleep(5.0)
        await run.resize(0, 6 + turn)
        await asyncio.sleep(5.0)
        released = {"vreplica.dev/released-at": timestamp(wall_clock())}
        await run.patch(VPODS, "v0", {"metadata": {"annotations": released}}, TENANTS[0])
        await asyncio.sleep(5.0)
    await run.settled()


async def _limit(run: Run) -> None:
    """A tenant gets its limit, then more, then less; the pool cannot have what both ask for."""
    spec = {"poolRef": {"namespace": NS, "name": NAME}, "limit": 3}
    quota = {"metadata": {"name": "quota"}, "spec": spec}
    await run.world.cluster.create(VREPLICAQUOTAS, TENANTS[0], quota)
    run.arm()
    await run.start()
    await run.vpods(6, 9, weights=(1,))
    await run.settled()
    for limit in (8, 2):
        await run.patch(VREPLICAQUOTAS, "quota", {"spec": {"limit": limit}}, TENANTS[0])
        await run.settled()
    await asyncio.sleep(5.0)


async def _repair(run: Run) -> None:
    """Pods slip past the webhook, and ledgers become unreadable: of a pod that holds nothing, and
    of one that does.
    """
    run.bypass_webhook()
    run.arm()
    await run.start()
    await run.until(lambda: run.replicas() == 3, "three pods are asked for")
    await run.settled()
    await run.vpods(3, 3, weights=(1,))
    await run.settled()
    run.world.faults.rates = CALM
    for name in ("dispatcher-0", "dispatcher-2"):
        await run.annotate(name, **{PLACEMENTS: "no JSON"})
    await asyncio.sleep(0.5)
    await run.settled()


async def _reactivate(run: Run) -> None:
    """A pod comes back while its pool is gone, and is refused; then the pool is there again."""
    await run.start()
    await run.vpods(3, 3, weights=(1,))
    await run.settled()
    run.arm()
    pool = run.world.stored(ADAPTERPOOLS)[NS, NAME]
    await run.world.cluster.delete(ADAPTERPOOLS, NS, NAME)
    await run.world.cluster.delete(PODS, NS, "dispatcher-0")
    await asyncio.sleep(5.0)
    await run.world.cluster.create(
        ADAPTERPOOLS, NS, {"metadata": {"name": NAME}, "spec": pool["spec"]}
    )
    await asyncio.sleep(0.5)
    await run.settled()


async def _no_adapter(run: Run) -> None:
    """A pod that names our kube-scheduler, and is no adapter, is bound like any other."""
    await run.start()
    run.arm()
    pod: Obj = {
        "metadata": {"name": "plain"},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [{"name": "c", "image": "i"}]},
    }
    await run.world.cluster.create(PODS, NS, pod)
    await run.until(lambda: _plain_node(run) != "", "it is bound")
    await run.settled()


def _plain_node(run: Run) -> str:
    node: str = run.world.stored(PODS)[NS, "plain"]["spec"].get("nodeName", "")
    return node


async def _reschedule(run: Run) -> None:
    """A node is lost for longer than rescheduleAfterSeconds."""
    await run.start()
    await run.vpods(3, 3, weights=(1,))
    await run.settled()
    run.arm()
    run.world.embedded.fail_node(run.world.stored(PODS)[NS, "dispatcher-1"]["spec"]["nodeName"])
    await asyncio.sleep(70.0)
    await run.until(lambda: not run.checkers.pods["dispatcher-1"].total, "its work is elsewhere")
    for index in range(run.world.scale.nodes):
        run.world.embedded.recover_node(f"node-{index}")
    await asyncio.sleep(5.0)
    await run.settled()


async def _callers(run: Run) -> None:
    """A caller that keeps its status asks for vreplicas, and gives them back."""
    await run.start()
    run.arm()
    deciding = asyncio.Event()
    run.when("committer.py", lambda _process: deciding.set())
    await run.vpods(3, weights=(1,))
    await deciding.wait()
    await run.schedule(4)
    await run.resize(0, 5)
    await run.schedule(0)
    await run.settled()


async def _foreign(run: Run) -> None:
    """An object of a foreign kind comes, grows and goes."""
    await run.world.cluster.create(
        CRDS, "", yaml.safe_load((KNATIVE / "consumergroups.yaml").read_text())
    )
    run.arm()
    await run.start()
    group: Obj = {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": {"name": "g"},
        "spec": {"template": {}, "replicas": 3},
    }
    await run.world.cluster.create(GROUPS, TENANTS[0], group)
    await run.until(lambda: _placed(run) == 3, "it is placed")
    await run.patch(NAMESPACES, TENANTS[0], {"metadata": {"labels": {"tier": "gold"}}}, "")
    await run.patch(GROUPS, "g", {"spec": {"replicas": 7}}, TENANTS[0])
    await run.until(lambda: _placed(run) == 7, "all of it is placed")
    await run.world.cluster.delete(GROUPS, TENANTS[0], "g")
    await run.settled()
    await run.patch(ADAPTERPOOLS, NAME, {"spec": {"sources": []}})
    await asyncio.sleep(2.0)
    await run.settled()


def _placed(run: Run) -> int:
    (group,) = run.world.stored(GROUPS).values()
    return sum(item["vreplicas"] for item in group.get("status", {}).get("placements", []))


async def _answers_lost(run: Run) -> None:
    """As growing and shrinking, while calls are refused, answers lost, watches cut off and binds
    repeated.
    """
    await run.start()
    run.arm()
    run.binds_twice = True
    run.world.faults.rates = FaultRates(
        conflict=0.2,
        internal_error=0.1,
        patch_reply_lost=0.25,
        status_reply_lost=0.25,
        bind_reply_lost=0.25,
        scale_reply_lost=0.25,
        lease_reply_lost=0.25,
        bind_repeated=0.3,
        bind_unknown_node=0.5,
        watch_dropped=0.1,
        watch_expired=0.1,
    )
    await run.vpods(3, 3, 3)
    await asyncio.sleep(20.0)
    for vreplicas in (1, 4):
        await run.resize(0, vreplicas)
        await asyncio.sleep(10.0)
    run.world.faults.rates = CALM
    await run.settled()
    await asyncio.sleep(DOUBT_S)


def _scale(min_pods: int = 0, **pool: Any) -> Scale:
    return Scale(nodes=3, slots_per_pod=5, replicas=0, min_pods=min_pods, pools=(pool,))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario("grow", _grow),
        Scenario("many", _many, Scale(nodes=3, slots_per_pod=40, replicas=0)),
        Scenario("return", _return),
        Scenario("resize", _resize),
        Scenario("drain", _drain, moves=frozenset({"Drain"})),
        Scenario(
            "shrink pool", _shrink_pool, _scale(min_pods=3, **POOL), moves=frozenset({"Compaction"})
        ),
        Scenario(
            "balance",
            _balance,
            _scale(
                min_pods=2,
                scaleDownPeriodSeconds=5,
                rebalance={**POOL["rebalance"], "load": {"metric": LOAD_METRIC, "target": 1.6}},
            ),
            moves=frozenset({"Load"}),
        ),
        Scenario("assign", _assign, _scale(handoff={})),
        Scenario(
            "hand over",
            _hand_over,
            _scale(min_pods=3, handoff={"mode": "Overlap"}),
            moves=frozenset({"Evicted"}),
        ),
        Scenario(
            "hand over, exclusive",
            _hand_over,
            _scale(min_pods=3, handoff={"mode": "Exclusive", "leaseSeconds": 5}),
            moves=frozenset({"Evicted"}),
        ),
        Scenario(
            "lose lease",
            _lose_lease,
            _scale(
                min_pods=3,
                rescheduleAfterSeconds=5,
                handoff={"mode": "Exclusive", "leaseSeconds": 5},
            ),
            moves=frozenset({"Reschedule"}),
        ),
        Scenario(
            "maintain",
            _maintain,
            _scale(
                min_pods=3,
                handoff={"mode": "Overlap"},
                descheduling={"reasons": ["NodeMaintenance"]},
            ),
            moves=frozenset({"Maintenance"}),
        ),
        Scenario(
            "deschedule",
            _maintain,
            _scale(min_pods=3, descheduling={"reasons": ["NodeMaintenance"]}, **POOL),
        ),
        Scenario(
            "roll out",
            _roll_out,
            _scale(
                min_pods=3, handoff={"mode": "Overlap"}, rollout={"strategy": "HandedOver"}, **POOL
            ),
            moves=frozenset({"Rollout", "Compaction"}),
            again=1,
        ),
        Scenario("failover", _failover),
        Scenario("stopped in doubt", _stopped_in_doubt),
        Scenario("no lease", _no_lease),
        Scenario("lease taken", _lease_taken),
        Scenario(
            "share", _share, Scale(nodes=3, slots_per_pod=5, replicas=0, pools=({},) * 3, buckets=2)
        ),
        Scenario(
            "limit",
            _limit,
            Scale(nodes=3, slots_per_pod=5, replicas=0, max_pods=2, pools=({"tenancy": {}},)),
        ),
        Scenario(
            "quarantine",
            _quarantine,
            _scale(min_pods=2, quarantine={"crashedPods": 2, "withinSeconds": 3600}),
        ),
        Scenario("repair", _repair, _scale(min_pods=3)),
        Scenario("reactivate", _reactivate),
        Scenario("no adapter", _no_adapter),
        Scenario(
            "reschedule",
            _reschedule,
            _scale(rescheduleAfterSeconds=10, scaleDownPeriodSeconds=20),
            moves=frozenset({"Reschedule", "Compaction"}),
        ),
        Scenario("callers", _callers),
        Scenario("foreign", _foreign, _scale(sources=[{"preset": "knative-consumergroup"}])),
        Scenario("answers lost", _answers_lost),
    )
}
