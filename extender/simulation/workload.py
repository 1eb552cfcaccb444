"""The workload: what tenants, operators and bad luck do to a world, drawn from its seed.

Swarm testing: a seed first draws which actions and which faults there are at all, and how often. A run with everything at
once hides what a run with only two things shows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.kube.api import (
    ADAPTERPOOLS,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Binding,
    Obj,
    PatchType,
    Resource,
)
from extender.sim.faults import CALM
from extender.simulation.draws import PROFILES, drawn_rebalance
from extender.simulation.facts import MARKS, PLACEMENTS, SLOTS
from extender.simulation.world import NS, TENANTS, World, vpod_object

VPODS_MAX: Final = 12
REPLICAS_MAX: Final = 3
PODS_MAX: Final = 12
"""What somebody else may set the replicas to."""


@dataclass(frozen=True)
class Act:
    """One thing that may happen, and how often beside the others."""

    name: str
    weight: float
    do: Callable[[], Awaitable[None]]


class Workload:
    """Acts on a world until ``calm_down``. ``counts`` says how often it did what."""

    def __init__(self, world: World, *, plain: bool = False) -> None:
        self.world = world
        self.rng = world.rng("workload")
        self.counts: dict[str, int] = {}
        self._vpods = 0
        self._failed: set[str] = set()
        always = [
            Act("create vpod", 6, self.create_vpod),
            Act("resize vpod", 6, self.resize_vpod),
        ]
        sometimes = [
            Act("delete vpod", 2, self.delete_vpod),
            Act("recreate vpod", 1, self.recreate_vpod),
            Act("reweigh vpod", 1, self.reweigh_vpod),
            Act("delete pod", 4, self.delete_pod),
            Act("cordon node", 1, self.cordon_node),
            Act("uncordon node", 1, self.uncordon_node),
            Act("fail node", 1, self.fail_node),
            Act("recover node", 1, self.recover_node),
            Act("change minPods", 1, self.change_min_pods),
            Act("change maxPods", 1, self.change_max_pods),
            Act("change slotsPerPod", 1, self.change_slots),
            Act("mark pod", 2, self.mark_pod),
            Act("unmark pod", 2, self.unmark_pod),
            Act("edit ledger", 1, self.edit_ledger),
            Act("edit status", 1, self.edit_status),
            Act("bind elsewhere", 2, self.bind_elsewhere),
            Act("scale", 1, self.scale),
            Act("compact history", 1, self.compact),
            Act("kill replica", 2, self.kill_replica),
            Act("kill replica at a call", 3, self.kill_at_call),
            Act("start replica", 3, self.start_replica),
        ]
        if not plain:
            sometimes += [
                Act("move vpod to a pool", 2, self.move_vpod),
                Act("change minPodsPerVPod", 1, self.change_min_pods_per_vpod),
                Act("change rescheduleAfterSeconds", 1, self.change_reschedule),
                Act("change profile", 1, self.change_profile),
                Act("change rebalance", 1, self.change_rebalance),
                Act("shrink all", 1, self.shrink_all),
            ]
        self.acts = always + [act for act in sometimes if self.rng.random() < 0.6]
        if self.rng.random() < 0.4:
            world.bypass_rate = self.rng.uniform(0.0, 0.5)

    async def run(self, steps: int) -> None:
        """So many actions, with pauses between them: most are short, some let everything settle."""
        for _ in range(self.rng.randint(1, 6)):
            await self._do(self.acts[0])
        for _ in range(steps):
            await asyncio.sleep(self._pause_s())
            await self._do(self.rng.choices(self.acts, [act.weight for act in self.acts])[0])
            self.world.bury()
            if not self.world.replicas and self.rng.random() < 0.5:
                self.world.start_replica()

    def _pause_s(self) -> float:
        return self.rng.choice((0.0, 0.01, 0.1, 1.0, 1.0, 5.0, 20.0)) * self.rng.random()

    async def _do(self, act: Act) -> None:
        self.counts[act.name] = self.counts.get(act.name, 0) + 1
        self.world.trace(f"workload: {act.name}")
        try:
            await act.do()
        except ApiError as error:
            self.world.trace(f"workload: {error.reason}")

    async def calm_down(self) -> None:
        """No more faults: nodes are well, processes run. What operators have asked for stays."""
        world = self.world
        world.faults.rates = CALM
        world.bypass_rate = 0.0
        for name in sorted(self._failed):
            world.embedded.recover_node(name)
        self._failed.clear()
        for _, name in world.stored(NODES):
            await self._merge(NODES, "", name, {"spec": {"unschedulable": None}})
        for replica in world.replicas:
            replica.api.crash_at_call = None
        world.bury()
        while len(world.replicas) < 2:
            world.start_replica()

    # -- what to act on ------------------------------------------------------------------------------------------

    def _any(self, resource: Resource, among: Callable[[Obj], bool] = lambda _: True) -> Obj | None:
        found = [obj for obj in self.world.stored(resource).values() if among(obj)]
        return self.rng.choice(found) if found else None

    def _pod(self, among: Callable[[Obj], bool] = lambda _: True) -> Obj | None:
        return self._any(PODS, lambda pod: not pod["metadata"].get("deletionTimestamp") and among(pod))

    async def _merge(
        self, resource: Resource, namespace: str, name: str, patch: Obj, subresource: str = ""
    ) -> None:
        await self.world.cluster.patch(
            resource, namespace, name, patch, patch_type=PatchType.MERGE, subresource=subresource
        )

    async def _annotate(self, pod: Obj, annotations: dict[str, Any]) -> None:
        await self._merge(PODS, NS, pod["metadata"]["name"], {"metadata": {"annotations": annotations}})

    async def _respec(self, obj: Obj, spec: Obj) -> None:
        metadata = obj["metadata"]
        await self._merge(VPODS, metadata["namespace"], metadata["name"], {"spec": spec})

    # -- tenants -----------------------------------------------------------------------------------------------------

    async def create_vpod(self) -> None:
        if len(self.world.stored(VPODS)) >= VPODS_MAX:
            return
        self._vpods += 1
        weight = self.rng.choice((1, 1, 1, 2, 3))
        vpod = vpod_object(f"v{self._vpods}", self.rng.randint(1, 12), weight, self._pool_name())
        await self.world.cluster.create(VPODS, self.rng.choice(TENANTS), vpod)

    async def resize_vpod(self) -> None:
        if (vpod := self._any(VPODS)) is not None:
            await self._respec(vpod, {"vreplicas": self.rng.choice((0, 1, 2, 4, 8, 12))})

    async def reweigh_vpod(self) -> None:
        if (vpod := self._any(VPODS)) is not None:
            await self._respec(vpod, {"slotsPerVReplica": self.rng.randint(1, 4)})

    async def delete_vpod(self) -> None:
        if (vpod := self._any(VPODS)) is not None:
            await self.world.cluster.delete(VPODS, vpod["metadata"]["namespace"], vpod["metadata"]["name"])

    async def recreate_vpod(self) -> None:
        if (vpod := self._any(VPODS)) is not None:
            namespace, name = vpod["metadata"]["namespace"], vpod["metadata"]["name"]
            await self.world.cluster.delete(VPODS, namespace, name)
            await asyncio.sleep(self._pause_s())
            again = vpod_object(name, self.rng.randint(1, 8), pool=self._pool_name())
            await self.world.cluster.create(VPODS, namespace, again)

    async def move_vpod(self) -> None:
        """To another pool, or to the one that it is in."""
        if (vpod := self._any(VPODS)) is not None:
            await self._respec(vpod, {"poolRef": {"namespace": NS, "name": self._pool_name()}})

    async def shrink_all(self) -> None:
        """Night: nearly nothing is wanted, and most pods could go."""
        for vpod in list(self.world.stored(VPODS).values()):
            await self._respec(vpod, {"vreplicas": self.rng.choice((0, 1, 1))})

    # -- operators -----------------------------------------------------------------------------------------------------

    async def delete_pod(self) -> None:
        if (pod := self._pod()) is not None:
            grace = self.rng.choice((None, None, 0))
            await self.world.cluster.delete(PODS, NS, pod["metadata"]["name"], grace_period_s=grace)

    async def cordon_node(self) -> None:
        if (node := self._any(NODES)) is not None:
            await self._merge(NODES, "", node["metadata"]["name"], {"spec": {"unschedulable": True}})

    async def uncordon_node(self) -> None:
        if (node := self._any(NODES)) is not None:
            await self._merge(NODES, "", node["metadata"]["name"], {"spec": {"unschedulable": None}})

    async def fail_node(self) -> None:
        if (node := self._any(NODES)) is not None:
            self._failed.add(node["metadata"]["name"])
            self.world.embedded.fail_node(node["metadata"]["name"])

    async def recover_node(self) -> None:
        if self._failed:
            name = self.rng.choice(sorted(self._failed))
            self._failed.discard(name)
            self.world.embedded.recover_node(name)

    def _pool_name(self) -> str:
        pools = self.world.pools
        return pools[0] if len(pools) == 1 else self.rng.choice(pools)

    async def _respec_pool(self, spec: Obj) -> None:
        await self._merge(ADAPTERPOOLS, NS, self._pool_name(), {"spec": spec})

    async def change_min_pods(self) -> None:
        await self._respec_pool({"minPods": self.rng.randint(0, 4)})

    async def change_max_pods(self) -> None:
        await self._respec_pool({"maxPods": self.rng.choice((None, 2, 4, 8, 12))})

    async def change_slots(self) -> None:
        await self._respec_pool({"slotsPerPod": self.rng.randint(2, 12)})

    async def change_min_pods_per_vpod(self) -> None:
        await self._respec_pool({"minPodsPerVPod": self.rng.randint(0, 4)})

    async def change_reschedule(self) -> None:
        await self._respec_pool({"rescheduleAfterSeconds": self.rng.choice((None, 0, 5, 30))})

    async def change_profile(self) -> None:
        await self._respec_pool({"profile": self.rng.choice(PROFILES)})

    async def change_rebalance(self) -> None:
        await self._respec_pool({"rebalance": drawn_rebalance(self.rng)})

    async def mark_pod(self) -> None:
        if (pod := self._pod()) is not None:
            await self._annotate(pod, {self.rng.choice(MARKS): "true"})

    async def unmark_pod(self) -> None:
        def is_marked(pod: Obj) -> bool:
            return any(mark in (pod["metadata"].get("annotations") or {}) for mark in MARKS)

        if (pod := self._pod(is_marked)) is not None:
            await self._annotate(pod, dict.fromkeys(MARKS))

    async def scale(self) -> None:
        pool = self._pool_name()
        scale = await self.world.cluster.get(STATEFULSETS, NS, pool, subresource="scale")
        replicas = max(0, scale["spec"]["replicas"] + self.rng.choice((-2, -1, 1, 2)))
        scale["spec"]["replicas"] = min(replicas, PODS_MAX)
        await self.world.cluster.update(STATEFULSETS, NS, pool, scale, subresource="scale")

    # -- what nobody should do ---------------------------------------------------------------------------------------

    async def edit_ledger(self) -> None:
        pod = self._pod(lambda pod: bool(pod["spec"].get("nodeName")))
        if pod is None:
            return
        text = (pod["metadata"].get("annotations") or {}).get(PLACEMENTS)
        edit = self.rng.choice(("garbage", "gone", "both gone", "less", "more", "ghost"))
        if edit in ("less", "more", "ghost"):
            text = self._edited(edit, text)
        values: dict[str, dict[str, str | None]] = {
            "garbage": {PLACEMENTS: "{oops"},
            "gone": {PLACEMENTS: None},
            "both gone": {PLACEMENTS: None, SLOTS: None},
        }
        await self._annotate(pod, values.get(edit, {PLACEMENTS: text}))

    def _edited(self, edit: str, text: str | None) -> str:
        try:
            ledger: dict[str, Any] = orjson.loads(text or "{}")
        except orjson.JSONDecodeError:
            ledger = {}
        if edit == "ghost" or not ledger:
            ledger[f"{TENANTS[0]}/ghost"] = self.rng.randint(1, 3)
        elif edit == "less":
            del ledger[self.rng.choice(sorted(ledger))]
        else:
            ledger[self.rng.choice(sorted(ledger))] = self.rng.randint(1, 15)
        return orjson.dumps(ledger, option=orjson.OPT_SORT_KEYS).decode()

    async def edit_status(self) -> None:
        if (vpod := self._any(VPODS)) is None:
            return
        placements = [dict(item) for item in (vpod.get("status") or {}).get("placements") or ()]
        if placements and self.rng.random() < 0.7:
            item = self.rng.choice(placements)
            item["vreplicas"] = self.rng.randint(1, 6)
            if self.rng.random() < 0.3:
                placements.remove(item)
        else:
            placements.append({"podName": f"{self._pool_name()}-{self.rng.randint(0, 15)}", "vreplicas": 1})
        unique = {item["podName"]: item for item in placements}
        metadata = vpod["metadata"]
        patch: Obj = {"status": {"placements": list(unique.values())}}
        await self._merge(VPODS, metadata["namespace"], metadata["name"], patch, "status")

    async def bind_elsewhere(self) -> None:
        """Another scheduler binds a pod that waits for ours."""
        pod = self._pod(lambda pod: not pod["spec"].get("nodeName"))
        node = self._any(NODES)
        if pod is not None and node is not None:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            await self.world.cluster.bind(Binding(NS, name, node["metadata"]["name"], uid=uid))

    async def compact(self) -> None:
        self.world.cluster.compact()

    # -- processes ---------------------------------------------------------------------------------------------------

    async def kill_replica(self) -> None:
        if self.world.replicas:
            self.world.kill(self.rng.choice(self.world.replicas))

    async def kill_at_call(self) -> None:
        """One dies in one of its next calls, before it is served or after: at any await, that is."""
        if self.world.replicas:
            api = self.rng.choice(self.world.replicas).api
            api.crash_after_effect = self.rng.random() < 0.5
            api.crash_at_call = api.calls + self.rng.randint(1, 30)

    async def start_replica(self) -> None:
        if len(self.world.replicas) < REPLICAS_MAX:
            self.world.start_replica()
