"""What is not yet as it should be, once the faults have stopped: I1 to I3 without any excuse, and
nothing stranded.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.lab.simulation.world.facts import SHARE_BYTES_MAX, TENANT_BYTES_MAX, Pod, Pool, VPod

_UNSERVED: Final = {"NodeLost", "PodTerminating", "PodNotReady"}
"""Reasons of Available that blame a pod."""


@dataclass
class Stored:
    """What the API server stores, as the checkers have read it."""

    pods: dict[str, Pod] = field(default_factory=dict)
    vpods: dict[str, VPod] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    node_slots: dict[str, int] = field(default_factory=dict)
    """Of nodes that declare any."""
    zone_of: dict[str, str] = field(default_factory=dict)
    """Node name -> zone."""
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Of namespaces."""
    ready_nodes: set[str] = field(default_factory=set)
    """Nodes that are Ready."""

    def pool(self, name: str) -> Pool:
        """The pool of that name; one of which nothing is known yet comes to be."""
        return self.pools.setdefault(name, Pool(name))

    def published(self, pod_name: str) -> dict[str, int]:
        """Vpod -> vreplicas that its status has on this pod."""
        return {
            key: count
            for key, vpod in self.vpods.items()
            if (count := vpod.placements.get(pod_name, 0))
        }

    def outweighed(self, pod: Pod) -> list[str]:
        """Vpods whose vreplicas weigh something else in the pod's ledger than they do now."""
        return [
            key
            for key, (_, weight) in (pod.ledger or {}).items()
            if (vpod := self.vpods.get(key)) is not None and vpod.weight != weight
        ]

    def pool_of(self, vpod: VPod) -> Pool:
        """Its pool; an empty one where there is none."""
        return self.pools.get(vpod.pool, Pool(vpod.pool))

    def is_allowed(self, vpod: VPod) -> bool:
        """Whether its pool is for its namespace. What is not allowed keeps what it has, and gets no
        more.
        """
        labels = self.labels.get(vpod.namespace, {})
        return all(labels.get(key) == value for key, value in self.pool_of(vpod).selector.items())

    def differences(self) -> list[str]:
        """In words; empty: settled."""
        found = [line for pool in self.pools.values() for line in self._pod_differences(pool)]
        found += [line for pod in self.pods.values() for line in self._ledger_differences(pod)]
        found += [line for vpod in self.vpods.values() for line in self._status_differences(vpod)]
        found += [line for vpod in self.vpods.values() for line in self._served_differences(vpod)]
        return found

    def idle(self) -> Iterator[str]:
        """Pods that should have been removed long ago: the highest of a pool, that holds nothing
        and is not needed.
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
            # A pod has the slots that it was created with, whatever its pool says by now.
            room = sum(map(self._slots, useful))
            if not self._has_bytes(pool, len(useful)):
                continue
            # A marked pod is made up for by another, until somebody takes the mark away; so is one
            # that was given up.
            lost = self._slots(top) if self._must_go(pool, top.name) else 0
            if len(rest) >= pool.min_pods and room >= expected + lost:
                yield f"{top.name} holds nothing and is not needed for {expected} slots of {pool}"

    def _has_bytes(self, pool: Pool, pods: int) -> bool:
        """Whether the ledgers of so many pods have bytes for all vpods, were each on as many of
        them as it may be.
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
        """Whether no node has slots for a pod; under a hard zone rule, whether a zone has none,
        which may be its own.
        """
        if pod is None or pod.node or pod.deleting:
            return False
        # It asks for what it was created with, whatever its pool says by now.
        slots = pod.taken or pool.slots
        if pool.profile != "ha" or not self.published(pod.name):
            # The rule holds for what a pod carries: one that carries nothing may go to any zone.
            return not self._a_node_has(slots)
        return any(most < slots for most in self._most_left().values())

    def _a_node_has(self, slots: int) -> bool:
        """Whether one more pod of so many slots would find a node; all nodes declare slots, or
        none.
        """
        left = self._most_left()
        return not left or max(left.values()) >= slots

    def _most_left(self) -> dict[str, int]:
        """Zone -> the most slots that one of its nodes has left; empty where nodes declare none."""
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
            if key in self.vpods and key not in kept and self.vpods[key].weight != weight
        ]:
            found.append(f"I3: ledger of {pod.name} is {pod.text}, with stale weights of {wrong}")
        if pod.total > (slots := self._slots(pod)):
            found.append(f"I1: {pod.name} has {slots} slots, and holds {pod.text}")
        return found

    def _kept_from_others(self, pod: Pod) -> int:
        """Slots by which vpods that their pool is not for weigh more by now than they do in the
        ledger, for as long as they are not decided.
        """
        return sum(
            count * max(0, vpod.weight - weight)
            for key, (count, weight) in (pod.ledger or {}).items()
            if (vpod := self.vpods.get(key)) is not None and not self.is_allowed(vpod)
        )

    def _slots(self, pod: Pod) -> int:
        return min(pod.slots or 0, self.pools[pod.pool].slots) if pod.pool in self.pools else 0

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
        # Those are told what is left without a place, and not that some is to leave the one it has.
        if told_otherwise and not (vpod.is_silent and draining):
            # What stays on a pod being drained for want of room elsewhere counts as not scheduled.
            found.append(
                f"{vpod.key}: {vpod.total} of {vpod.wanted} placed, and Scheduled is "
                f"{vpod.condition}"
            )
        if draining and self._has_room(vpod, leaving=draining):
            found.append(
                f"I3: {vpod.key} is still on {draining}, to be emptied: {self._where_room(vpod)}"
            )
        if vpod.total > pool.most(vpod) or (vpod.total < vpod.wanted and self._has_room(vpod)):
            found.append(
                f"I3: {vpod.key} has {dict(vpod.placements)} of {vpod.wanted}: "
                f"{self._where_room(vpod)}"
            )
        return found

    def _served_differences(self, vpod: VPod) -> Iterator[str]:
        """Of what it says is served: its pods are Ready, are not going, and stand on nodes that are
        Ready.
        """
        if vpod.is_silent:
            return
        ready = sum(
            count for name, count in vpod.placements.items() if self._serves(self.pods.get(name))
        )
        told = vpod.available
        if told is None or told[0] != ready:
            yield f"{vpod.key}: {ready} of {vpod.total} are served, and its status says {told}"
        elif (told[1] == "True" and not ready == vpod.total >= vpod.wanted) or (
            told[2] in _UNSERVED
        ) is not (ready < vpod.total):
            yield f"{vpod.key}: {ready} of {vpod.wanted} are served, and Available is {told[1:]}"

    def _serves(self, pod: Pod | None) -> bool:
        return pod is not None and pod.ready and not pod.deleting and pod.node in self.ready_nodes

    def _refusal_differences(self, vpod: VPod) -> list[str]:
        """Of one that its pool is not for: no more than it wants, and what is missing is told with
        the reason.
        """
        if vpod.total > self.pool_of(vpod).most(vpod):
            return [f"I3: {vpod.key} has {dict(vpod.placements)} of {vpod.wanted}"]
        told = vpod.condition[0] == "False" and (
            vpod.foreign or vpod.condition[1] == "TenantNotAllowed"
        )
        if (vpod.total < vpod.wanted) is not told:
            return [f"{vpod.key} is not allowed in {vpod.pool}, and Scheduled is {vpod.condition}"]
        return []

    def _must_go(self, pool: Pool, name: str) -> bool:
        """Whether what is on a pod shall be elsewhere: it is marked, or has not been Ready for too
        long.
        """
        pod = self.pods.get(name)
        return (pod is not None and pod.marked) or self._is_given_up(pool, pod)

    def _is_given_up(self, pool: Pool, pod: Pod | None) -> bool:
        """Whether a pod is not there to be counted on: once all is at rest, it has not been for
        longer than its pool waits.
        """
        return pool.reschedule_after_s is not None and not self._serves(pod)

    def _free(self, vpod: VPod) -> dict[str, int]:
        pool = self.pool_of(vpod)
        last = pool.ordinals.stop if pool.max_pods is None else pool.ordinals.start + pool.max_pods
        free = {
            pod.name: self._slots(pod) - pod.total - self._kept_from_others(pod)
            for pod in self.pods.values()
            # What is beyond maxPods takes nothing new: a person has ordered that it goes.
            if pod.pool == pool.name
            and pod.node
            and not self._must_go(pool, pod.name)
            and not pod.deleting
            and pod.ordinal < last
        }
        return {
            name: slots
            for name, slots in free.items()
            if slots >= vpod.weight and self.pods[name].has_bytes_for(vpod.key)
        }

    def _has_room(self, vpod: VPod, leaving: Collection[str] = ()) -> bool:
        """Whether slots for one more exist, or could: a pod with room, or a pool that may grow;
        under a zone rule there.

        ``leaving``: the pods whose vreplicas look for another place, for these.
        """
        pool = self.pool_of(vpod)
        if pool.profile == "ha":
            return self._has_room_in_zone(vpod, leaving)
        # A pod that waits for a node will have room when it gets one; a pool does not grow beyond
        # it meanwhile.
        waits = any(self._may_wait(pool, self.pods.get(name)) for name in pool.names)
        may_grow = not waits and (pool.max_pods is None or len(pool.ordinals) < pool.max_pods)
        return bool(self._free(vpod)) or (
            may_grow and vpod.weight <= pool.slots and self._a_node_has(pool.slots)
        )

    def _has_room_in_zone(self, vpod: VPod, leaving: Collection[str]) -> bool:
        """Under the hard zone rule: whether a zone that holds the fewest of a vpod's vreplicas has
        a pod with room.

        No zone may hold over one more than the least loaded one. All zones with nodes count here,
        also those that no pod of the pool could stand in: so the least of those that do count is
        not lower, and one more in a zone with the least of all is allowed whichever they are. What
        is on pods that are gone, or wait, belongs to a zone that is not known here: then nothing is
        said. Nor of pods that are still to come: in which zone is for kube-scheduler to say. What
        is ``leaving`` is in no zone until it has another place.
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
        return any(zones[self.zone_of[self.pods[name].node]] <= least for name in self._free(vpod))

    def _where_room(self, vpod: VPod) -> str:
        pool = self.pool_of(vpod)
        return f"room {self._free(vpod)}, {len(pool.ordinals)} of at most {pool.max_pods} pods"
