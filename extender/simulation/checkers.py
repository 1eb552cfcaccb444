"""Checkers of the invariants, on what the API server stores, after every write, with no help from the engine.

    I1 never overcommitted  ``_check_i1``, on every ledger that the service writes; ``ledgers.write_problems``: none is lost
    I2 covered              ``_check_i2_of_pod`` and ``_check_i2_of_vpod``, on every write of a pod or a status
    I3 nothing lost         ``settled.Stored.differences``, once the faults have stopped
    I4 no needless move     ``MoveChecker.check``, on every status: what leaves a pod has a reason that the store knows of
    I5 bind is idempotent   ``World._repeated``, on binds sent twice; and ``run.state_problems``: no reservation is left

They read annotations and statuses as JSON, know nothing of plans and caches, and learn causes by watching the store too:
a pod annotated, an ordinal that is gone, a ledger that a person has edited. A cause excuses what it may excuse for
``EXCUSE_S``: a decision may be that old when it is written. What is excused must be put right in the end, which
``settled.differences`` checks once the faults have stopped.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from typing import Final

from extender.core.names import ZONE_LABEL
from extender.kube.api import Obj
from extender.sim.apiserver.store import Change
from extender.sim.faults import ACTOR
from extender.simulation.budgets import Budgets
from extender.simulation.caller_checks import Broken, CallerChecks
from extender.simulation.excuses import Circumstances, Excuses
from extender.simulation.facts import POOL, SLOTS, Pod, Pool, VPod, is_ready, read_pod, read_vpod
from extender.simulation.ledgers import write_problems
from extender.simulation.moves import SPREADING, MoveChecker
from extender.simulation.settled import Stored
from extender.simulation.streams import read_stream
from extender.simulation.uncovering import Uncovering

VIOLATIONS_MAX: Final = 200
WRITES_MAX: Final = 20_000
"""In one second of virtual time: who writes that often does not get anywhere."""
SERVICE: Final = "replica-"
"""Names of the service's actors begin so."""


class Checkers:
    """Subscribe ``on_change`` to the store. ``violations`` collects what was found; ``moves`` counts by reason."""

    def __init__(
        self,
        trace: Callable[[str], None] = lambda _line: None,
        circumstances: Circumstances | None = None,
    ) -> None:
        circumstances = circumstances or Circumstances()
        self._two_lead = circumstances.two_lead
        self._trace = trace
        self._excuse_s = excuse_s = circumstances.excuse_s
        self.violations: list[str] = []
        self.give_up: Callable[[], object] = lambda: None
        """Called once there is no more to learn from the run."""
        self._writes_in: tuple[int, int] = (0, 0)
        """A second, and the writes in it so far."""
        self.stored = Stored()
        self.pods, self.vpods, self.pools = self.stored.pods, self.stored.vpods, self.stored.pools
        self.differences = self.stored.differences
        self.last_write_s: dict[str, float] = {}
        """Plural -> time of its last write."""
        self._clock = asyncio.get_running_loop().time
        self._excuses = Excuses(self._clock, excuse_s)
        self._budgets = Budgets(self._clock, circumstances)
        self._moves = MoveChecker(
            self.stored,
            self._excuses,
            self._budgets,
            circumstances,
            was_broken=self._was_broken,
            violated=self._violated,
        )
        self.moves = self._moves.made
        broken = Broken()
        self._unrepaired, self._weights_seen = broken.unrepaired, broken.weights_seen
        self._uncovering = Uncovering(self._clock)
        self.callers = CallerChecks(
            self.stored,
            self._excuses,
            self._uncovering,
            self._moves,
            circumstances,
            broken=broken,
            violated=self._violated,
        )
        self._last_read: dict[str, Obj] = {}
        """Pod name -> the object that was read."""
        self._edited: set[str] = set()
        """Vpods whose status somebody else has written, until it is covered again."""

    def on_change(self, kind: tuple[str, str], change: Change) -> None:
        """A write that has just happened."""
        self.last_write_s[kind[1]] = self._clock()
        self._count_write(int(self._clock()))
        before = change.before.obj if change.before is not None else None
        after = change.after.obj if change.after is not None else None
        metadata = (after or before or {})["metadata"]
        if ACTOR.get().startswith(SERVICE):
            self._budgets.wrote(ACTOR.get())
        handlers: dict[str, Callable[[Obj | None, Obj | None], None]] = {
            "vpods": partial(self._vpod_changed, read_vpod),
            "streams": partial(self._vpod_changed, read_stream),
            "adapterpools": self._pool_changed,
            "statefulsets": self._stateful_set_changed,
            "nodes": self._node_changed,
            "namespaces": self._namespace_changed,
            "leases": self._lease_changed,
        }
        if kind[1] == "pods" and POOL in (metadata.get("labels") or {}):
            self._pod_changed(before, after)
        elif kind[1] in handlers:
            handlers[kind[1]](before, after)

    def _count_write(self, second: int) -> None:
        count = self._writes_in[1] + 1 if self._writes_in[0] == second else 1
        self._writes_in = (second, count)
        if count == WRITES_MAX:
            self._violated(f"{count} writes in one second, and no end of it")
            self.give_up()

    # -- causes --------------------------------------------------------------------------------------------------

    def _pool(self, name: str) -> Pool:
        return self.pools.setdefault(name, Pool(name))

    def _pool_changed(self, before: Obj | None, after: Obj | None) -> None:
        if after is None:
            return
        pool = self._pool(after["metadata"]["name"])
        slots, raised = pool.slots, pool.min_pods_per_vpod
        if pool.profile in SPREADING:
            self._excuses.note(f"profile {pool.name}")
        if before is not None and not pool.dry_run:
            self._excuses.note(f"moving {pool.name}")
        selector = pool.selector
        pool.read(after["spec"])
        if pool.selector != selector:
            self._excuses.note(f"selector {pool.name}")
        pool.limits_seen.append(
            (self._clock(), inf if pool.reschedule_after_s is None else pool.reschedule_after_s)
        )
        if pool.slots != slots:
            too_much = (name for name in self._every_pod(pool) if self._needed(name) > pool.slots)
            self._unrepaired |= dict.fromkeys(too_much, "slotsPerPod has changed")
            if before is not None:
                # Of pods that come later, too: a watch that was late replays what a pool was meanwhile.
                self._excuses.note(f"slots {pool.name}")
            pool.slots_seen.append((self._clock(), pool.slots))
        if before is None or after["spec"] != before["spec"]:
            self._budgets.pool_changed(pool)
            self._trace(f"    {pool.name} is {after['spec']}")
        if pool.min_pods_per_vpod != raised:
            pool.raised_seen.append((self._clock(), pool.min_pods_per_vpod))

    def _needed(self, pod_name: str) -> int:
        """Slots of all that its ledger has, or is published there."""
        held = self._uncovering.held(pod_name)
        published = self._published(pod_name)
        weights = {key: vpod.weight for key, vpod in self.vpods.items()}
        return sum(
            max(held.get(key, (0, 1))[0], published.get(key, 0))
            * max(held.get(key, (0, 1))[1], weights.get(key, 1))
            for key in {*held, *published}
        )

    def _published(self, pod_name: str) -> dict[str, int]:
        """vpod -> vreplicas that its status has on this pod."""
        return {key: count for key, vpod in self.vpods.items() if (count := vpod.placements.get(pod_name, 0))}

    def _heaviest_lately(self, vpod: str) -> int:
        since, seen = self._clock() - self._excuse_s, self._weights_seen.get(vpod, [])
        earlier = [weight for at, weight in seen if at < since]
        return max([weight for at, weight in seen if at >= since] + earlier[-1:], default=1)

    def _every_pod(self, pool: Pool) -> set[str]:
        published = {name for vpod in self.vpods.values() for name in vpod.placements}
        there = {pod.name for pod in self.pods.values() if pod.pool == pool.name}
        return {*there, *published, *pool.names}

    def _stateful_set_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None:
            pool = self._pool(after["metadata"]["name"])
            start = (after["spec"].get("ordinals") or {}).get("start", 0)
            ordinals = range(start, start + after["spec"]["replicas"])
            if ordinals != pool.ordinals:
                self._trace(f"    ordinals of {pool.name} are {ordinals}")
            if ACTOR.get().startswith(SERVICE) and not self._two_lead():
                self._check_i3(pool, set(pool.ordinals) - set(ordinals))
            # Also what comes: until now it was gone.
            for ordinal in set(pool.ordinals) ^ set(ordinals):
                self._excuses.note(f"gone {pool.name}-{ordinal}")
            for ordinal in set(pool.ordinals) - set(ordinals):
                self.callers.ordinal_gone(f"{pool.name}-{ordinal}")
            pool.ordinals = ordinals

    def _check_i3(self, pool: Pool, removed: Collection[int]) -> None:
        """Who scales a pool down takes away no pod on which anything is published."""
        for ordinal in sorted(removed):
            for key in self._published(f"{pool.name}-{ordinal}"):
                pod = self.pods.get(f"{pool.name}-{ordinal}")
                if self.vpods[key].by_caller and not (pod is not None and pod.node and pod.count(key)):
                    continue  # only its caller knows of it: it is to ask again
                if not self._was_edited(key):
                    self._violated(f"I3: {ACTOR.get()} removed {pool.name}-{ordinal}, which {key} is on")

    def _node_changed(self, before: Obj | None, after: Obj | None) -> None:
        node = (after or before or {})["metadata"]["name"]
        ready = after is not None and is_ready(after)
        self._moves.presence.node_seen(node, ready=ready, pods=self.pods.values())
        if after is None:
            return
        name = after["metadata"]["name"]
        self.stored.zone_of[name] = (after["metadata"].get("labels") or {}).get(ZONE_LABEL, "")
        if (slots := (after["status"].get("allocatable") or {}).get(SLOTS)) is not None:
            self.stored.node_slots[name] = int(slots)

    def _namespace_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is None:
            return
        name, labels = after["metadata"]["name"], after["metadata"].get("labels") or {}
        if labels != self.stored.labels.get(name):
            self._excuses.note(f"labels {name}")
            self.stored.labels[name] = labels
            self._trace(f"    {name} has labels {labels}")

    def _lease_changed(self, before: Obj | None, after: Obj | None) -> None:
        """Another leads, or the same one anew, after which its moves count from the beginning."""
        terms = [
            [
                (obj or {}).get("spec", {}).get(name)
                for name in ("holderIdentity", "acquireTime", "leaseTransitions")
            ]
            for obj in (before, after)
        ]
        if terms[0] != terms[1]:
            self._budgets.leader_changed()
            self.callers.leader_changed()

    def _slots_lately(self, pool: Pool) -> int:
        """The largest slotsPerPod that a decision written now may have seen."""
        return pool.lately(pool.slots_seen, self._clock() - self._excuse_s)

    # -- pods: I1, I2 ----------------------------------------------------------------------------------------------

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        old = self._read_before(before) if before is not None else None
        if old is not None and old.marked:
            self._excuses.note(f"marked {old.name}")
        if after is None:
            name = (before or {})["metadata"]["name"]
            self.pods.pop(name, None)
            self._last_read.pop(name, None)
            self._moves.presence.pod_gone(name)
            if old is not None and old.node:
                # Who has seen a pod that was never bound has seen nothing of what the last one held.
                self.callers.pod_gone(name)
            return
        pod = self.pods[after["metadata"]["name"]] = read_pod(after)
        self._last_read[pod.name] = after
        self._moves.pod_seen(pod)
        if pod != old:
            gone = ", deleting" if pod.deleting else ", marked" if pod.marked else ""
            self._trace(f"    {pod.name} on {pod.node or 'no node'}, {pod.slots} slots, {pod.text}{gone}")
        if not pod.node:
            return
        by_service = ACTOR.get().startswith(SERVICE)
        bound_now = old is None or not old.node
        if bound_now or pod.text != (old.text if old else None):
            self._may_uncover(pod, by_service=by_service, bound_now=bound_now)
        if by_service and before is not None:
            for problem in write_problems(before, after):
                self._violated(f"I1: {ACTOR.get()}: {problem}")
        if by_service and (bound_now or old is None or pod.text != old.text):
            self._check_i1(pod, old.total if old is not None and old.node else 0)
        self._check_i2_of_pod(pod)

    def _may_uncover(self, pod: Pod, *, by_service: bool, bound_now: bool) -> None:
        """A ledger has changed: what of it may have been taken away rightly."""
        if self._two_lead():
            self._uncovering.all_of(pod.name)
        elif not by_service:
            self._uncovering.edited(pod, self._published(pod.name))
        elif bound_now:
            pool = self._pool(pod.pool)
            slots = pool.least_lately(pool.slots_seen, self._clock() - self._excuse_s)
            least = slots if pod.slots is None else min(slots, pod.slots)
            self._uncovering.bound(
                pod, self._published(pod.name), least, self._heaviest_lately, self._was_edited
            )
            self.callers.bound(pod, ACTOR.get())
        if self._two_lead() or not by_service:
            self._unrepaired[pod.name] = f"bound or edited by {ACTOR.get() or 'the workload'}"

    def _read_before(self, before: Obj) -> Pod:
        """As read when it was written, where that is the very object: a change follows on the one before."""
        name = before["metadata"]["name"]
        known = self.pods.get(name)
        return known if known is not None and self._last_read.get(name) is before else read_pod(before)

    def _check_i1(self, pod: Pod, before: int) -> None:
        """A ledger that the service writes is within the pod's slots, or nearer to it than before."""
        allowed = self._slots_lately(self._pool(pod.pool))
        if pod.slots is not None:
            allowed = min(allowed, pod.slots)
        if pod.ledger is None:
            self._violated(f"I1: {ACTOR.get()} wrote an unreadable ledger on {pod.name}: {pod.text!r}")
        elif pod.total > allowed and pod.total > before:
            self._violated(
                f"I1: {ACTOR.get()} wrote {pod.total} slots on {pod.name}, which has {allowed}: {pod.text}"
            )

    def _check_i2_of_pod(self, pod: Pod) -> None:
        uncovered = self._uncovered(pod)
        self._uncovering.ledger(pod, uncovered)
        fits = (
            pod.slots is not None
            and pod.ledger is not None
            and pod.total <= min(pod.slots, self._pool(pod.pool).slots)
        )
        if not uncovered and fits and self._unrepaired.pop(pod.name, None) is not None:
            self._excuses.note(f"unrepaired {pod.name}")
        for key in uncovered:
            if not self._uncovering.excuses(pod.name, key) and not self._was_edited(key):
                self._violated(f"I2: {self._both(pod, key)}")

    def _was_broken(self, pod_name: str) -> bool:
        return pod_name in self._unrepaired or self._excuses.holds(f"unrepaired {pod_name}")

    def _was_edited(self, vpod: str) -> bool:
        return vpod in self._edited or self._excuses.holds(f"edited {vpod}")

    def _uncovered(self, pod: Pod) -> list[str]:
        return [key for key, vpod in self.vpods.items() if vpod.placements.get(pod.name, 0) > pod.count(key)]

    def _both(self, pod: Pod, key: str) -> str:
        vpod = self.vpods[key]
        return (
            f"{ACTOR.get()} wrote; status of {key} (wants {vpod.wanted}) has {dict(vpod.placements)}, "
            f"ledger of {pod.name} on {pod.node} has {pod.text}"
        )

    # -- vpods: I2, I4 -----------------------------------------------------------------------------------------------

    def _vpod_changed(self, read: Callable[[Obj], VPod], before: Obj | None, after: Obj | None) -> None:
        old = read(before) if before is not None else None
        if after is None:
            if old is not None:
                self.vpods.pop(old.key, None)
                self._edited.discard(old.key)
            return
        new = read(after)
        self.vpods[new.key] = new
        if new != old:
            self._trace(
                f"    {new.key} wants {new.wanted} of {new.weight} (generation {new.generation}), "
                f"in {new.pool}, has {dict(new.placements)} ({new.observed}), {new.condition}"
            )
        if old is not None and old.pool != new.pool:
            self._excuses.note(f"pool {new.key}")
        if old is None or old.weight != new.weight:
            self._weights_seen.setdefault(new.key, []).append((self._clock(), new.weight))
        if old is not None and old.weight != new.weight:
            self._excuses.note(f"weight {new.key}")
            for name in new.placements:
                self._unrepaired[name] = f"weight of {new.key} has changed"
        if old is not None and (old.placements, old.condition) != (new.placements, new.condition):
            if ACTOR.get().startswith(SERVICE) and not self._two_lead():
                self._check_moved(old, new)
            else:
                self._edited.add(new.key)
                # What it claims there may overcommit the pod, to be trimmed from any vpod.
                self._unrepaired |= dict.fromkeys(new.placements, f"status of {new.key} was edited")
        self._check_i2_of_vpod(new)

    def _check_moved(self, old: VPod, new: VPod) -> None:
        was_edited = self._was_edited(new.key)
        if not was_edited and new.total > old.total and self._is_refused(new):
            self._violated(
                f"status: {ACTOR.get()} gave {new.key} more, whose namespace {new.pool} does not select: "
                f"{dict(old.placements)} became {dict(new.placements)}"
            )
        if not new.foreign:
            self._moves.check(old, new, was_edited=was_edited)
            self._check_honest(new)
        elif wrong := self._moves.check_untold(old, new, lambda _: was_edited):
            self._violated(f"I4: {ACTOR.get()} {wrong}")

    def _is_refused(self, vpod: VPod) -> bool:
        """Whether its pool has not been for its namespace for longer than a decision may be old."""
        changed = self._excuses.holds(f"labels {vpod.namespace}") or self._excuses.holds(
            f"selector {vpod.pool}"
        )
        return (
            not changed and not self._excuses.holds(f"pool {vpod.key}") and not self.stored.is_allowed(vpod)
        )

    def _check_i2_of_vpod(self, vpod: VPod) -> None:
        uncovered = [
            pod
            for name, count in vpod.placements.items()
            if (pod := self.pods.get(name)) is not None and pod.node and pod.count(vpod.key) < count
        ]
        if not uncovered and vpod.key in self._edited:
            self._edited.discard(vpod.key)
            self._excuses.note(f"edited {vpod.key}")
        for pod in uncovered:
            if self._uncovering.excuses(pod.name, vpod.key):
                self._uncovering.published(pod.name, vpod.key)
            elif not self._was_edited(vpod.key):
                self._violated(f"I2: {self._both(pod, vpod.key)}")

    def _check_honest(self, vpod: VPod) -> None:
        """Scheduled=True for the present generation means that the present spec is placed."""
        pool = self._pool(vpod.pool)
        raised = pool.lately(pool.raised_seen, self._clock() - self._excuse_s) if vpod.wanted else 0
        placed = vpod.wanted <= vpod.total <= max(vpod.wanted, raised)
        if vpod.observed == vpod.generation and vpod.condition[0] == "True" and not placed:
            self._violated(
                f"status: {vpod.key} says {vpod.condition} for generation {vpod.generation}, which wants "
                f"{vpod.wanted}, with {dict(vpod.placements)}"
            )

    def _violated(self, what: str) -> None:
        self._trace(f"VIOLATED {what}")
        self.violations.append(f"at {self._clock():.3f} s: {what}")
        if len(self.violations) == VIOLATIONS_MAX:
            self.give_up()
