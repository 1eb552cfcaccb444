"""Faults that are acts: processes killed, paused or with wrong clocks, lost nodes and zones, Leases
changed by hand.

Each is a kind of ``ACT_KINDS`` with its own probability. ``edits`` has the other changes by hand.
``extender.lab.faults`` makes calls and watches fail.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from extender.config.model import LeaderElectionConfig
from extender.kube.api import LEASES, NODES, PODS, ApiError, NotFound, Obj
from extender.kube.seen_lease import LOOKS_MISSED_MAX
from extender.lab.clock import wall_clock
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.workload.api_server import ApiServerActs
from extender.lab.simulation.workload.edits import Edits
from extender.lab.simulation.workload.taints import Taints
from extender.lab.simulation.world.installation import install_lease
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import LEASE, NS, ZONES
from extender.model.names import OWN_NAMESPACE
from extender.model.timestamps import epoch_s

REPLICAS_MAX: Final = 3
PROBE_FAILS_MAX_S: Final = 60.0
NOT_READY_MAX_S: Final = 300.0
PAUSE_MAX_S: Final = 40.0
"""A Lease lasts 15 s."""
LEASE_UNSEEN_S: Final = LOOKS_MISSED_MAX * LeaderElectionConfig().retry_period_s + 1.0
"""A younger Lease may not have been seen by every replica."""
RIVALS_LEASE: Final = "vreplica-scheduler-rival"
RIVAL_MAX_S: Final = 30.0


class FaultActs:
    """``acts`` by kind. ``calm_down`` ends the faults that last."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._failed: set[str] = set()
        self._unready: dict[str, bool] = {}
        """Pod name -> whether its failing readiness probe recovers by itself. If not, it fails
        beyond the end of the faults.
        """
        self._later: set[asyncio.Task[None]] = set()
        self.taints = Taints(scene, self._soon)
        self.acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "killReplica": self._kill_replica,
            "stopReplica": self._stop_replica,
            "killAtCall": self._kill_at_call,
            "startReplica": self._start_replica,
            "pauseReplica": self._pause_replica,
            "stealLease": self._steal_lease,
            "leaseThereAndBack": self._lease_there_and_back,
            "clockJump": self._clock_jump,
            "schedulerRestart": self._restart_scheduler,
            "apiServerOutage": self._outage,
            "historyCompacted": self._compact,
            "nodeFails": self._fail_node,
            "zoneFails": self._fail_zone,
            "nodesRecover": self._recover_nodes,
            "nodeClockJump": self._node_clock_jump,
            "probeFails": self._fail_probe,
            "podNotReady": self._pod_not_ready,
            "podForceDeleted": self._force_delete,
            "podsForceDeleted": self._force_delete_all,
            "podRefused": self._refuse_next,
            "nodeTainted": self.taints.taint,
            "leaseDeleted": self._delete_lease,
            "rivalLeader": self._start_rival,
            "leaseEmptied": self._empty_lease,
            "leaseReapplied": self._reapply_lease,
            **Edits(scene).acts,
            **ApiServerActs(scene, self._forget_probes).acts,
        }

    async def calm_down(self) -> None:
        """Recover nodes, resume processes and kill rivals."""
        await self._recover_nodes()
        await self.taints.clear()
        for name, ends in list(self._unready.items()):
            if ends:
                self._probe(name, ready=True)
        for task in list(self._later):
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        self._kill_rivals()
        for replica in self._scene.world.replicas:
            replica.resume()
            replica.api.crash_at_call = None

    def _soon(self, delay_s: float, act: Callable[[], Awaitable[object] | None]) -> None:
        async def later() -> None:
            await asyncio.sleep(delay_s)
            try:
                if (work := act()) is not None:
                    await work
            except ApiError:
                return

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # -- processes ---------------------------------------------------------------------------------

    def _any_replica(self) -> Replica | None:
        replicas = self._scene.world.replicas
        return self._scene.rng.choice(replicas) if replicas else None

    async def _kill_replica(self) -> bool:
        if (replica := self._any_replica()) is None:
            return False
        self._scene.world.kill(replica)
        return True

    async def _stop_replica(self) -> bool:
        world = self._scene.world
        replica = world.leadership.leader or next(iter(world.replicas), None)
        if replica is None or replica.paused:
            return False
        world.stop(replica)
        return True

    async def _kill_at_call(self) -> bool:
        if (replica := self._any_replica()) is None:
            return False
        api = replica.api
        api.crash_after_effect = self._scene.rng.random() < 0.5
        api.crash_at_call = api.calls + self._scene.rng.randint(1, 30)
        return True

    async def _start_replica(self) -> bool:
        if len(self._scene.world.replicas) >= REPLICAS_MAX:
            return False
        self._scene.world.start_replica()
        return True

    async def _pause_replica(self) -> bool:
        world, rng = self._scene.world, self._scene.rng
        # Mostly pause the leader, because that has the most effect.
        replica = (world.leadership.leader if rng.random() < 0.7 else None) or self._any_replica()
        if replica is None or replica.paused:
            return False
        replica.pause()
        self._soon(rng.uniform(0.5, PAUSE_MAX_S), replica.resume)
        return True

    def _lease(self) -> str:
        """Return the name of one of the Leases for leading pools."""
        leases = self._scene.world.scale.lease_names
        return self._scene.rng.choice(leases) if len(leases) > 1 else LEASE

    async def _give_lease(self, lease: str, holder: str) -> None:
        patch = {"spec": {"holderIdentity": holder}}
        await self._scene.merge(LEASES, OWN_NAMESPACE, lease, patch)

    def _holder(self, lease: str) -> str:
        found = self._scene.world.stored(LEASES).get((OWN_NAMESPACE, lease), {})
        return str(found.get("spec", {}).get("holderIdentity") or "")

    def _held_lease(self) -> str:
        """Return the name of a Lease that has a holder, or ""."""
        lease = self._lease()
        return lease if self._holder(lease) else ""

    def _other(self, lease: str) -> str | None:
        """Return the identity of a replica that does not hold the Lease."""
        names = [
            replica.service.identity for replica in self._scene.world.replicas if not replica.rival
        ]
        others = [name for name in names if name != self._holder(lease)]
        return self._scene.rng.choice(others) if others else None

    async def _steal_lease(self) -> bool:
        lease = self._lease()
        other = self._other(lease)
        if other is None or not self._holder(lease):
            return False
        await self._give_lease(lease, other)
        return True

    async def _lease_there_and_back(self) -> bool:
        lease = self._lease()
        first, other = self._holder(lease), self._other(lease)
        if other is None or not first:
            return False
        await self._give_lease(lease, other)
        self._soon(self._scene.rng.uniform(0.1, 6.0), lambda: self._give_lease(lease, first))
        return True

    async def _delete_lease(self) -> bool:
        if not (lease := self._held_lease()):
            return False
        found = await self._scene.world.cluster.get(LEASES, OWN_NAMESPACE, lease)
        await self._scene.world.cluster.delete(LEASES, OWN_NAMESPACE, lease)
        created_s = epoch_s(found["metadata"]["creationTimestamp"], 0.0)
        if wall_clock() - created_s < LEASE_UNSEEN_S:
            self._scene.world.leadership.lease_unseen()
        return True

    async def _empty_lease(self) -> bool:
        if not (lease := self._held_lease()):
            return False
        await self._give_lease(lease, "")
        return True

    async def _reapply_lease(self) -> bool:
        if not (lease := self._held_lease()):
            return False
        await self._scene.world.cluster.delete(LEASES, OWN_NAMESPACE, lease)
        await install_lease(self._scene.world.cluster, lease)
        self._scene.world.leadership.lease_unseen()
        return True

    async def _start_rival(self) -> bool:
        world = self._scene.world
        if world.leadership.two_lead():
            return False
        await self._forget_rivals()
        world.start_replica(lease=RIVALS_LEASE)
        self._soon(self._scene.rng.uniform(5.0, RIVAL_MAX_S), self._kill_rivals)
        return True

    async def _forget_rivals(self) -> None:
        """Replace the rival's Lease, so that the next rival leads at once."""
        world = self._scene.world
        with suppress(NotFound):
            await world.cluster.delete(LEASES, OWN_NAMESPACE, RIVALS_LEASE)
        await install_lease(world.cluster, RIVALS_LEASE)

    def _kill_rivals(self) -> None:
        world = self._scene.world
        for rival in [replica for replica in world.replicas if replica.rival]:
            world.kill(rival)

    async def _clock_jump(self) -> bool:
        if (replica := self._any_replica()) is None:
            return False
        replica.clock_ahead_s += self._scene.rng.choice((-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0))
        return True

    async def _restart_scheduler(self) -> bool:
        self._scene.world.restart_scheduler()
        return True

    async def _outage(self) -> bool:
        for replica in self._scene.world.replicas:
            self._scene.world.faults.cut_off(replica.name)
        return True

    async def _compact(self) -> bool:
        self._scene.world.cluster.compact()
        return True

    # -- machines ----------------------------------------------------------------------------------

    async def _fail_node(self) -> bool:
        node = self._scene.any(NODES)
        if node is None:
            return False
        self._fail(node["metadata"]["name"])
        return True

    def _fail(self, name: str) -> None:
        self._failed.add(name)
        self._scene.world.embedded.fail_node(name)

    async def _fail_zone(self) -> bool:
        zone = self._scene.rng.randrange(ZONES)
        for index in range(zone, self._scene.world.scale.nodes, ZONES):
            self._fail(f"node-{index}")
        return True

    async def _recover_nodes(self) -> bool:
        failed = sorted(self._failed)
        for name in failed:
            self._failed.discard(name)
            self._scene.world.embedded.recover_node(name)
        return bool(failed)

    async def _node_clock_jump(self) -> bool:
        if (node := self._scene.any(NODES)) is None:
            return False
        ahead_s, name = self._scene.world.embedded.clock_ahead_s, node["metadata"]["name"]
        ahead_s[name] = ahead_s.get(name, 0.0) + self._scene.rng.choice(
            (-3600.0, -600.0, -30.0, 30.0, 600.0)
        )
        return True

    async def _fail_probe(self) -> bool:
        pod = self._scene.pod(lambda pod: bool(pod["spec"].get("nodeName")))
        return self._unready_for(pod, self._scene.rng.uniform(1.0, PROBE_FAILS_MAX_S))

    async def _pod_not_ready(self) -> bool:
        """Make a pod not Ready for longer than any pool waits, or for as long as it exists, even
        after the faults have stopped.
        """
        rng, failed = self._scene.rng, self._failed
        pod = self._scene.pod(lambda pod: pod["spec"].get("nodeName", "") not in {"", *failed})
        return self._unready_for(
            pod, rng.choice((None, rng.uniform(PROBE_FAILS_MAX_S, NOT_READY_MAX_S)))
        )

    def _unready_for(self, pod: Obj | None, lasts_s: float | None) -> bool:
        """``lasts_s`` None: for as long as the pod exists."""
        if pod is None or pod["metadata"]["name"] in self._unready:
            return False
        name = pod["metadata"]["name"]
        self._unready[name] = lasts_s is not None
        self._probe(name, ready=False)
        if lasts_s is not None:
            self._soon(lasts_s, lambda: self._probe(name, ready=True))
        return True

    def _forget_probes(self) -> None:
        """Forget the failing probes: restarted kubelets probe all pods again."""
        self._unready.clear()

    def _probe(self, name: str, *, ready: bool) -> None:
        """Change the probe of the present pod of that name, if its kubelet knows the pod."""
        if ready:
            self._unready.pop(name, None)
        with suppress(KeyError):
            self._scene.world.embedded.set_ready(NS, name, ready=ready)

    async def _delete_now(self, pod: Obj) -> None:
        await self._scene.world.cluster.delete(PODS, NS, pod["metadata"]["name"], grace_period_s=0)

    async def _force_delete(self) -> bool:
        pod = self._scene.pod()
        if pod is None:
            return False
        await self._delete_now(pod)
        return True

    async def _refuse_next(self) -> bool:
        pod = self._scene.pod()
        if pod is None:
            return False
        metadata = pod["metadata"]
        self._scene.world.embedded.refuse_next(metadata["namespace"], metadata["name"])
        await self._delete_now(pod)
        return True

    async def _force_delete_all(self) -> bool:
        pods = list(self._scene.world.stored(PODS).values())
        for pod in pods:
            await self._delete_now(pod)
        return bool(pods)
