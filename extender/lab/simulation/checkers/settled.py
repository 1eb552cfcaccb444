"""What is not yet correct after the faults have stopped: I1 to I3 without any excuse, and vpods or
pods that wait although they need not.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.lab.simulation.world.facts import SHARE_BYTES_MAX, TENANT_BYTES_MAX, Pod, Pool, VPod

PLACED: Final = ("True", "AllPlaced")
EXCEEDED: Final = ("False", "QuotaExceeded")
PREEMPTED: Final = ("False", "Preempted")
_UNSERVED: Final = {"NodeLost", "PodTerminating", "PodNotReady"}
"""Reasons of Available that blame a pod."""


@dataclass
class Stored:
    """The objects in the API server, as the checkers have read them."""

    pods: dict[str, Pod] = field(default_factory=dict)
    vpods: dict[str, VPod] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    node_slots: dict[str, int] = field(default_factory=dict)
    """Node name -> its slots, for nodes that declare any."""
    zone_of: dict[str, str] = field(default_factory=dict)
    """Node name -> zone."""
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace -> its labels."""
    amounts: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """vpod -> dimension -> what one vreplica takes. It is the same for all objects of that name."""
    may_be_limited: Callable[[VPod], bool] = lambda _vpod: False
    """Whether a vpod may wait because its tenant has as much as it may (``TenancyChecker``)."""
    is_left_out: Callable[[str, str], bool] = lambda _pod, _vpod: False
    """Whether a pod's adapter cannot be told of a vpod (``HandoverChecker``)."""
    ready_nodes: set[str] = field(default_factory=set)
    """Names of the nodes that are Ready."""

    def pool(self, name: str) -> Pool:
        """Return the pool of that name. An unknown one is added."""
        return self.pools.setdefault(name, Pool(name))

    def published(self, pod_name: str) -> dict[str, int]:
        """Return vpod -> vreplicas that its status has on the pod."""
        return {
            key: count
            for key, vpod in self.vpods.items()
            if (count := vpod.placements.get(pod_name, 0))
        }

    def with_stale_weight(self, pod: Pod) -> list[str]:
        """Return the vpods whose weight in the pod's ledger is not their present one."""
        return [
            key
            for key, (_, weight) in (pod.ledger or {}).items()
            if (vpod := self.vpods.get(key)) is not None and vpod.weight != weight
        ]

    def pool_of(self, vpod: VPod) -> Pool:
        """Return the vpod's pool; an empty one if it is unknown."""
        return self.pools.get(vpod.pool, Pool(vpod.pool))

    def is_allowed(self, vpod: VPod) -> bool:
        """Return whether the vpod's pool selects its namespace, and the vpod is not in quarantine.
        If not, the vpod keeps what it has, and gets nothing more.
        """
        if vpod.quarantined:
            return False
        labels = self.labels.get(vpod.namespace, {})
        return all(labels.get(key) == value for key, value in self.pool_of(vpod).selector.items())

    def differences(self) -> list[str]:
        """Describe what is not correct yet. An empty list means settled."""
        found = [line for pool in self.pools.values() for line in self._pod_differences(pool)]
        found += [line for pod in self.pods.values() for line in self._ledger_differences(pod)]
        found += [line for vpod in self.vpods.values() for line in self._status_differences(vpod)]
        found += [line for vpod in self.vpods.values() for line in self._served_differences(vpod)]
        return found

    def idle(self) -> Iterator[str]:
        """Describe the pods that should have been removed long ago: the highest pod of a pool, if
        it is empty and not needed.
        """
        for pool in self.pools.values():
            top = self.pods.get(f"{pool.name}-{pool.ordinals.stop - 1}")
            if (
                top is None
                or top.total
                or not top.node
                or pool.profile == "ha"
                or self._waiting(pool)
            ):
                continue
            expected = sum(
                (pool.most(vpod) if self.is_allowed(vpod) else vpod.total) * vpod.weight
                for vpod in self.vpods.values()
                if vpod.pool == pool.name
            )
            rest = [self.pods.get(f"{pool.name}-{ordinal}") for ordinal in pool.ordinals[:-1]]
            useful = [pod for pod in rest if pod is not None and not self._must_go(pool, pod.name)]
            # A pod keeps the slots that it was created with, whatever its pool says.
            room = sum(map(self._slots, useful))
            if not self._has_bytes(pool, len(useful)):
                continue
            # The pool replaces a marked or given-up pod by another one, as long as the mark or the
            # failure lasts.
            lost = self._slots(top) if self._must_go(pool, top.name) else 0
            if len({pod.revision for pod in (*rest, top) if pod is not None}) > 1:
                # A rollout is under way, and perhaps waits, such as for a pod that somebody has
                # tried to evict until lately (seed 590001745).
                lost += pool.surge * pool.slots
            if not self._has_dimensions(pool, len(useful) - bool(lost)):
                continue
            if len(rest) >= pool.min_pods and room >= expected + lost:
                yield f"{top.name} holds nothing and is not needed for {expected} slots of {pool}"

    def _has_dimensions(self, pool: Pool, pods: int) -> bool:
        """Return whether this many pods have enough of each dimension for all vpods."""
        vpods = [vpod for vpod in self.vpods.values() if vpod.pool == pool.name]
        return all(
            sum(pool.most(vpod) * vpod.amounts.get(name, 0) for vpod in vpods) <= most * pods
            for name, most in pool.capacities.items()
        )

    def _has_bytes(self, pool: Pool, pods: int) -> bool:
        """Return whether the ledgers of this many pods have bytes for all vpods, even if each vpod
        is on as many pods as possible.
        """
        wanted: dict[str, int] = {}
        for vpod in self.vpods.values():
            if vpod.pool == pool.name:
                entry = len(vpod.key) + SHARE_BYTES_MAX
                mine = wanted.get(vpod.namespace, 0) + entry * min(pool.most(vpod), pods)
                wanted[vpod.namespace] = mine
        return all(mine <= TENANT_BYTES_MAX * pods for mine in wanted.values())

    def _waiting(self, pool: Pool) -> bool:
        waiting = (
            v for v in self.vpods.values() if v.pool == pool.name and v.condition[0] != "True"
        )
        return any(self.is_allowed(vpod) for vpod in waiting)

    # -- pods --------------------------------------------------------------------------------------

    def _pod_differences(self, pool: Pool) -> Iterator[str]:
        for name in sorted(pool.names):
            pod = self.pods.get(name)
            if (pod is None or not pod.node or pod.deleting) and not self._may_wait(pool, pod):
                yield f"pod {name} is missing, pending or being deleted"

    def _may_wait(self, pool: Pool, pod: Pod | None) -> bool:
        """Return whether a pod may stay pending, because no node has slots for it. Under a hard
        zone rule, it may if one zone has no such node, because it may need that zone.
        """
        if pod is None or pod.node or pod.deleting:
            return False
        # A pod requests the slots that it was created with, whatever its pool says.
        slots = pod.taken or pool.slots
        if pool.profile != "ha" or not self.published(pod.name):
            # The zone rule concerns what a pod carries. An empty pod may go to any zone.
            return not self._a_node_has(slots)
        return any(most < slots for most in self._most_left().values())

    def _a_node_has(self, slots: int) -> bool:
        """Return whether a further pod with so many slots would find a node. Either all nodes
        declare slots, or none.
        """
        left = self._most_left()
        return not left or max(left.values()) >= slots

    def _most_left(self) -> dict[str, int]:
        """Return zone -> the most free slots of one of its nodes; empty if nodes declare none."""
        left = dict(self.node_slots)
        for pod in self.pods.values():
            if pod.node in left:
                left[pod.node] -= pod.taken
        most: dict[str, int] = {}
        for node, slots in left.items():
            zone = self.zone_of.get(node, "")
            most[zone] = max(most.get(zone, slots), slots)
        return most

    def _ledger_differences(self, pod: Pod) -> list[str]:
        if not pod.node:
            return []
        if pod.ledger is None or pod.slots is None:
            return [f"{pod.name} is not repaired: slots {pod.slots}, ledger {pod.text!r}"]
        found = []
        published = self.published(pod.name)
        held = {key: count for key, (count, _) in pod.ledger.items()}
        if published != held:
            found.append(f"I3: ledger of {pod.name} is {pod.text}, statuses publish {published}")
        kept = {
            key for key in pod.ledger if key in self.vpods and not self.is_allowed(self.vpods[key])
        }
        if wrong := [
            key
            for key, (_, weight) in pod.ledger.items()
            if key in self.vpods
            and key not in kept
            and (self.vpods[key].weight, self.vpods[key].amounts)
            != (weight, pod.amounts.get(key, {}))
        ]:
            found.append(f"I3: ledger of {pod.name} is {pod.text}, with stale sizes of {wrong}")
        if pod.total > (slots := self._slots(pod)):
            found.append(f"I1: {pod.name} has {slots} slots, and holds {pod.text}")
        if (pool := self.pools.get(pod.pool)) is not None and (over := pool.overfull(pod)):
            found.append(f"I1: {pod.name} has too little {over} for {pod.text}")
        return found

    def _kept_from_others(self, pod: Pod) -> int:
        """Return the slots that are kept for vpods that their pool does not select. Their weights
        have grown, but the service does not update their ledger entries.
        """
        return sum(
            count * (vpod.weight - weight)
            for key, (count, weight) in (pod.ledger or {}).items()
            if (vpod := self.vpods.get(key)) is not None
            # The cheap question comes first: few vpods have grown, and a pod may have hundreds.
            and vpod.weight > weight
            and not self.is_allowed(vpod)
        )

    def _slots(self, pod: Pod) -> int:
        return min(pod.slots or 0, self.pools[pod.pool].slots) if pod.pool in self.pools else 0

    def slots_there(self, pool: Pool) -> int:
        """Return the slots of a pool's pods. One that takes nothing new has only what it holds."""
        return sum(
            pod.total
            if pod.deleting or self._must_go(pool, name) or not self._serves(pod)
            else self._slots(pod)
            for name in pool.names
            if (pod := self.pods.get(name)) is not None
        )

    # -- vpods -------------------------------------------------------------------------------------

    def _status_differences(self, vpod: VPod) -> list[str]:
        found, pool = [], self.pool_of(vpod)
        if vpod.by_caller and vpod.observed != vpod.generation:
            return [f"{vpod.key} has not been answered"]
        if vpod.observed != vpod.generation or vpod.scheduled != vpod.total:
            found.append(
                f"{vpod.key}: status is of generation {vpod.observed}, not {vpod.generation}"
            )
        if gone := [name for name in vpod.placements if name not in pool.names]:
            found.append(f"I3: {vpod.key} is placed on {gone}, which the StatefulSet does not have")
        if not self.is_allowed(vpod):
            return found + self._refusal_differences(vpod)
        draining = [name for name in vpod.placements if self._must_go(pool, name)]
        placed = vpod.wanted <= vpod.total <= pool.most(vpod) and not draining
        may_be_short = vpod.total < pool.most(vpod)
        told_otherwise = (vpod.condition[0] == "True") is not placed and not (
            placed and may_be_short
        )
        # Callers hear only how many vreplicas have no place, not that some must leave theirs.
        if told_otherwise and not (vpod.by_caller and draining):
            # Vreplicas that stay on a drained pod, because there is no room elsewhere, count as not
            # scheduled.
            found.append(
                f"{vpod.key}: {vpod.total} of {vpod.wanted} placed, and Scheduled is "
                f"{vpod.condition}"
            )
        if draining and self._has_room(vpod, leaving=draining):
            found.append(
                f"I3: {vpod.key} is still on {draining}, to be emptied: {self._where_room(vpod)}"
            )
        waits = vpod.total < vpod.wanted and not self.may_be_limited(vpod)
        if vpod.total > pool.most(vpod) or (waits and self._has_room(vpod)):
            found.append(
                f"I3: {vpod.key} has {dict(vpod.placements)} of {vpod.wanted}: "
                f"{self._where_room(vpod)}"
            )
        return found

    def _served_differences(self, vpod: VPod) -> Iterator[str]:
        """Check the vpod's report of served vreplicas: those on Ready pods that are not being
        deleted, on Ready nodes. A share for which an assignment has no room is served by nobody.
        """
        if vpod.by_caller or self._is_nobodys(vpod):
            return
        ready = sum(
            count
            for name, count in vpod.placements.items()
            if self._serves(self.pods.get(name)) and not self.is_left_out(name, vpod.key)
        )
        untold = any(self.is_left_out(name, vpod.key) for name in vpod.placements)
        unserved = {*_UNSERVED, "AdapterNotServing"} if untold else _UNSERVED
        reported = vpod.available
        if reported is None or reported[0] not in (None, ready):
            yield f"{vpod.key}: {ready} of {vpod.total} are served, and its status says {reported}"
        elif (reported[1] == "True" and not ready == vpod.total >= vpod.wanted) or (
            reported[2] in unserved
        ) is not (ready < vpod.total):
            yield (
                f"{vpod.key}: {ready} of {vpod.wanted} are served, and Available is {reported[1:]}"
            )

    def _serves(self, pod: Pod | None) -> bool:
        return pod is not None and pod.ready and not pod.deleting and pod.node in self.ready_nodes

    def _refusal_differences(self, vpod: VPod) -> list[str]:
        """Check a vpod that its pool does not select: it has no more than it wants, and if
        vreplicas are missing, the status reports the reason.
        """
        if vpod.total > self.pool_of(vpod).most(vpod):
            return [f"I3: {vpod.key} has {dict(vpod.placements)} of {vpod.wanted}"]
        if self._is_nobodys(vpod):
            return []
        why = "Quarantined" if vpod.quarantined else "TenantNotAllowed"
        says_why = vpod.condition == ("False", why)
        if (vpod.total < vpod.wanted) is not says_why:
            return [f"{vpod.key} is not allowed in {vpod.pool}, and Scheduled is {vpod.condition}"]
        return []

    def _is_nobodys(self, vpod: VPod) -> bool:
        """Return whether an object of a foreign kind belongs to no pool, so that nobody writes its
        status: no pool selects it, and it has no place that would keep it with one.
        """
        return vpod.foreign and not vpod.total and not self.is_allowed(vpod)

    def _must_go(self, pool: Pool, name: str) -> bool:
        """Return whether a pod's vreplicas should leave it: it is marked, is to be evicted now, or
        is given up.
        """
        pod = self.pods.get(name)
        if pod is not None and (pod.marked or pod.has_turn):
            return True
        return self._is_given_up(pool, pod)

    def _is_given_up(self, pool: Pool, pod: Pod | None) -> bool:
        """Return whether the pool no longer counts on a pod. At rest, a pod that does not serve has
        been down for longer than its pool waits.
        """
        return pool.reschedule_after_s is not None and not self._serves(pod)

    def _nobody_gets_ready(self, pool: Pool) -> bool:
        """Return whether so many pods on Ready nodes are given up that the pool has no hope of
        others: one more than serve are replaced, and no more (seed 321000061).
        """
        pods = [pod for name in pool.names if (pod := self.pods.get(name)) is not None]
        lost = [
            one for one in pods if self._is_given_up(pool, one) and one.node in self.ready_nodes
        ]
        return len(lost) > sum(map(self._serves, pods)) + 1

    def _free(self, vpod: VPod) -> dict[str, int]:
        pool = self.pool_of(vpod)
        last = pool.ordinals.stop if pool.max_pods is None else pool.ordinals.start + pool.max_pods
        free = {
            pod.name: self._slots(pod) - pod.total - self._kept_from_others(pod)
            for pod in self.pods.values()
            # A pod beyond maxPods takes nothing new, because a person has limited the pool.
            if pod.pool == pool.name
            and pod.node
            and not self._must_go(pool, pod.name)
            and not pod.deleting
            and pod.ordinal < last
        }
        return {
            name: slots
            for name, slots in free.items()
            if slots >= vpod.weight
            and (not vpod.max_per_pod or vpod.placements.get(name, 0) < vpod.max_per_pod)
            and self.pods[name].has_bytes_for(vpod.key)
            and all(
                self.pods[name].taken_of(dimension) + amount <= pool.capacities.get(dimension, 0)
                for dimension, amount in vpod.amounts.items()
            )
        }

    def _has_room(self, vpod: VPod, leaving: Collection[str] = ()) -> bool:
        """Return whether there is room for one more vreplica, or could be: on a pod, or because the
        pool may grow. Under a zone rule the room must be in an allowed zone. A vpod without any
        that needs several together needs room for all of them.

        ``leaving``: the pods whose vreplicas need the room.
        """
        pool = self.pool_of(vpod)
        if pool.profile == "ha":
            return self._has_room_in_zone(vpod, leaving)
        # A pod that waits for a node will have room once it gets one. Until then the pool does not
        # grow.
        waits = any(self._may_wait(pool, self.pods.get(name)) for name in pool.names)
        may_grow = not waits and (pool.max_pods is None or len(pool.ordinals) < pool.max_pods)
        may_grow = may_grow and not self._nobody_gets_ready(pool)
        free = self._free(vpod)
        if vpod.least > 1 and not vpod.total:
            most = vpod.max_per_pod or vpod.least
            room = sum(min(most, slots // vpod.weight) for slots in free.values())
            if may_grow and pool.max_pods is not None:
                more = pool.max_pods - len(pool.ordinals)
                may_grow = room + more * min(most, pool.slots // vpod.weight) >= vpod.least
            may_grow = may_grow and not vpod.amounts
            if vpod.amounts or room < vpod.least:
                free = {}
        return bool(free) or (may_grow and pool.could_hold(vpod) and self._a_node_has(pool.slots))

    def _has_room_in_zone(self, vpod: VPod, leaving: Collection[str]) -> bool:
        """Return whether, under the hard zone rule, a zone with the fewest of the vpod's vreplicas
        has a pod with room.

        The rule: no zone may have more than one vreplica more than the least loaded zone. This
        check counts all zones with nodes, even those where no pod of the pool can run. The zones
        that really count have at least as many as the least loaded of all, so one more there is
        always allowed.

        The zone of vreplicas on missing or unbound pods is unknown. Then the result is False. New
        pods do not count, because kube-scheduler chooses their zones. Vreplicas on ``leaving`` pods
        are in no zone until they have another place.
        """
        zones = dict.fromkeys(self.zone_of.values(), 0)
        for name, count in vpod.placements.items():
            if name in leaving:
                continue
            pod = self.pods.get(name)
            zone = self.zone_of.get(pod.node) if pod is not None else None
            if zone is None:
                return False
            zones[zone] += count
        least = min(zones.values(), default=0)
        if vpod.least > 1 and not vpod.total:
            return False  # nobody has counted whether all of them would be in allowed zones
        return any(zones[self.zone_of[self.pods[name].node]] <= least for name in self._free(vpod))

    def _where_room(self, vpod: VPod) -> str:
        pool = self.pool_of(vpod)
        return f"room {self._free(vpod)}, {len(pool.ordinals)} of at most {pool.max_pods} pods"
