"""``Rehearsal``: what a recording would have come to under another profile, going on from our own
decisions. Pure.

The recording supplies what the service does not decide: what vpods want, which nodes exist and
their condition, on which node an ordinal stands, which pods a person drains, the pools' specs. The
engine plays the rest: where vreplicas go, how many pods there are, what is moved.

It is a model, and simpler than a cluster: decisions are written at once, and new pods exist at
once. A new pod stands on the node of the recording, or else in the zone, and there on the node,
with the fewest pods of the pool. So the result is compared with the same model of what was
recorded, not with what happened.

.. code-block:: text

    entries of one second --> vpods that changed or wait, pods that leave --> place --> publish
                                 ^-- more pods, closed ones opened <-- plan_scale <--'
    each scaleDownPeriodSeconds of a pool: close what is not needed, plan_moves --> relocate,
                                           remove what is empty
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from extender.engine.placing.plan import Decision, place
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import relocations
from extender.engine.scaling.scale_down import (
    count_without_empty,
    lasting_count,
    ordinals_to_close,
    still_closed,
    waits_for_closed,
)
from extender.engine.scaling.size import (
    POOL_PODS_MAX,
    ScalePlan,
    plan_scale,
    waiting_without_growth,
)
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state_observer import Recorded
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPod, AdapterPool, Node, StatefulSet, VPod, object_key
from extender.whatif.comparison import moved
from extender.whatif.recording.entries import Abandon, EntryContent, Gone, Put
from extender.whatif.recording.objects import kind_of
from extender.whatif.recording.player import NO_CHANGES, Changes, without_ledger
from extender.whatif.trial import object_changed

MODEL: Final = "Model"
"""The kind of the model's own pods among the objects."""
ROUNDS_MAX: Final = 8
"""Rounds of placing and scaling up in one second. What is left continues in the next second."""


class Rehearsal:
    """Takes entries, and plays one second after the other (``tick``). ``state`` is the result so
    far.
    """

    def __init__(
        self, profiles: Mapping[str, Profile] = BUILT_IN_PROFILES, changes: Changes = NO_CHANGES
    ) -> None:
        self._changes = changes
        self.state = ClusterState(profiles)
        self.moved = 0
        """Vreplicas that have left a pod while they were wanted."""
        self._objects: dict[tuple[str, str], Recorded] = {}
        self._seen: set[tuple[str, str]] | None = None
        self._recorded_pods: dict[str, AdapterPod] = {}
        self._dirty: dict[str, dict[str, None]] = {}
        """Pool key -> vpods to decide, in the order in which they changed."""
        self._due: dict[str, float] = {}
        self._moved_at: dict[str, float] = {}
        self._quiet: dict[str, tuple[tuple[int, int], bool]] = {}
        """Pool key -> (its revision at the end of its last period, whether nothing has changed
        since the end of the period before).
        """

    # -- what comes from the recording -------------------------------------------------------------

    def begin_snapshot(self) -> None:
        """Objects that the coming snapshot does not have are gone."""
        self._seen = set()

    def end_snapshot(self) -> None:
        """The snapshot is complete."""
        seen, self._seen = self._seen, None
        if seen is not None:
            for kind, key in [known for known in self._known() if known not in seen]:
                self.play(Gone(kind, key))

    def _known(self) -> list[tuple[str, str]]:
        mine = [known for known in self._objects if known[0] != MODEL]
        return [*mine, *(("Pod", key) for key in self._recorded_pods)]

    def play(self, content: EntryContent) -> None:
        """Play one entry. Decisions of the recorded service are left out."""
        match content:
            case Put(obj):
                if self._seen is not None:
                    self._seen.add((kind_of(obj), obj.key))
                self._put(obj)
            case Gone(kind, key):
                self._gone(kind, key)
            case Abandon(pool, pods):
                self.state.pool(pool).set_abandoned(pods)
                self._touch(pool)
            case _:
                pass

    def _put(self, obj: Recorded) -> None:
        match obj:
            case AdapterPod():
                self._recorded_pods[obj.key] = obj
                self._touch(obj.pool)
                return
            case AdapterPool():
                obj = self._changes.of_pool(obj)
                self._touch(obj.key)
            case StatefulSet():
                if obj.replicas > POOL_PODS_MAX:
                    raise InvalidObject(
                        f"StatefulSet {obj.key}",
                        "spec.replicas",
                        f"{obj.replicas} pods are more than the {POOL_PODS_MAX} that are played",
                    )
                known = self._objects.get(("StatefulSet", obj.key))
                obj = (
                    replace(obj, replicas=known.replicas) if isinstance(known, StatefulSet) else obj
                )
                self._touch_all()
            case VPod():
                known = self._objects.get(("VPod", obj.key))
                if isinstance(known, VPod) and known.uid == obj.uid:
                    obj = replace(
                        obj, placements=known.placements if known.pool == obj.pool else {}
                    )
                    self._touch(known.pool)
                self._touch(obj.pool, obj.key)
            case Node():
                self._touch_all()
            case _:
                pass
        self._feed(obj)

    def _gone(self, kind: str, key: str) -> None:
        if kind == "Pod":
            if (pod := self._recorded_pods.pop(key, None)) is not None:
                self._touch(pod.pool)
            return
        old = self._objects.pop((kind, key), None)
        if old is not None:
            object_changed(self.state, old, None)
            self._touch_all()
        self._quiet.clear()  # revisions of a pool that comes back begin again

    def _feed(self, obj: Recorded) -> None:
        place_of = (kind_of(obj), obj.key)
        old, self._objects[place_of] = self._objects.get(place_of), obj
        object_changed(self.state, old, obj)

    def _touch(self, pool: str, vpod: str = "") -> None:
        dirty = self._dirty.setdefault(pool, {})
        if vpod:
            dirty[vpod] = None

    def _touch_all(self) -> None:
        for key, pool in self.state.pools.items():
            if pool.adapter_pool is not None:
                self._touch(key)

    # -- one second --------------------------------------------------------------------------------

    def tick(self, at: float) -> None:
        """Do what is due at that second."""
        for key in sorted(self._dirty):
            self._settle(key, self._dirty.pop(key), at)
        for key in sorted(self.state.pools):
            pool = self.state.pools.get(key)
            if pool is None or pool.adapter_pool is None:
                continue
            due = self._due.setdefault(key, at + pool.adapter_pool.scale_down_period_s)
            if at >= due:
                self._due[key] = at + pool.adapter_pool.scale_down_period_s
                if not self._rests(pool):
                    self._period(key, at)
                    self._note_quiet(pool, pool.adapter_pool, at)

    def _settle(self, key: str, changed: Mapping[str, None], at: float) -> None:
        pool = self.state.pool(key)
        wanted = dict(changed)
        for _ in range(ROUNDS_MAX):
            self._stand(pool)
            before = pool.revision
            for vpod in [*wanted, *_unsettled(pool)]:
                if (known := pool.vpods.get(vpod)) is not None:
                    self._publish(
                        known, place(pool, known, allowed=self.state.selects(key, known)), at
                    )
            wanted = {}
            plan = plan_scale(pool, self._allows(key))
            if plan is None or pool.stateful_set is None:
                return
            self._open(pool, plan)
            if min(plan.wanted, POOL_PODS_MAX) > pool.stateful_set.replicas:
                self._resize(pool, pool.stateful_set, min(plan.wanted, POOL_PODS_MAX))
            if pool.revision == before:
                return
        if pool.vpods_with_pending:
            self._touch(key)

    def _rests(self, pool: PoolState) -> bool:
        """Whether another period, and settling after it, would change nothing. This makes long
        silences cheap.
        """
        return self._quiet.get(pool.key) == (self.state.revision_of(pool), True)

    def _note_quiet(self, pool: PoolState, spec: AdapterPool, at: float) -> None:
        revision = self.state.revision_of(pool)
        before, _ = self._quiet.get(pool.key, (None, False))
        # Only the cooldown of moved vpods depends on time alone.
        cooling = any(self._cools(key, spec, at) for key in pool.vpods)
        self._quiet[pool.key] = (revision, revision == before and not cooling)

    def _cools(self, vpod: str, spec: AdapterPool, at: float) -> bool:
        return at - self._moved_at.get(vpod, float("-inf")) < spec.move_cooldown_s

    def _open(self, pool: PoolState, plan: ScalePlan) -> None:
        if not pool.closed:
            return
        waits = None if plan.cannot_grow else waits_for_closed(pool, self._allows(pool.key))
        keep = still_closed(pool, plan) if waits is None else 0
        if keep != pool.closed:
            pool.set_closed(keep)

    def _period(self, key: str, at: float) -> None:
        pool = self.state.pool(key)
        plan = plan_scale(pool, self._allows(key))
        if plan is None or pool.adapter_pool is None or pool.stateful_set is None:
            return
        if plan.wanted < pool.stateful_set.replicas:
            closed = ordinals_to_close(pool, plan, self._allows(key))
            if closed != pool.closed:
                pool.set_closed(closed)
        if not pool.adapter_pool.move_dry_run:
            self._move(pool, pool.adapter_pool, at)
        count = max(plan.wanted, count_without_empty(pool, self.state))
        count = lasting_count(pool, count, self._allows(key))
        if count < pool.stateful_set.replicas:
            self._resize(pool, pool.stateful_set, count)
        self._touch(key)

    def _move(self, pool: PoolState, spec: AdapterPool, at: float) -> None:
        limits = Limits(
            budget=spec.moves_per_period,
            cooling=lambda vpod: self._cools(vpod, spec, at),
        )
        allows = self._allows(pool.key)
        plan = plan_scale(pool, allows) if pool.vpods_with_pending else None
        advice = Advice(
            vpods=[key for key in sorted(pool.vpods) if allows(pool.vpods[key])],
            waiting=waiting_without_growth(pool, allows, plan) if plan is not None else (),
        )
        for decision in relocations(pool, plan_moves(pool, limits, advice)):
            self._publish(pool.vpods[decision.vpod], decision, at)

    def _publish(self, vpod: VPod, decision: Decision, at: float) -> None:
        if vpod.placements == decision.target:
            return
        if count := moved(vpod.placements, decision.target, wanted=vpod.vreplicas):
            self.moved += count
            self._moved_at[vpod.key] = at
        self._feed(
            replace(vpod, placements=dict(decision.target), observed_generation=vpod.generation)
        )

    def _allows(self, key: str) -> Callable[[VPod], bool]:
        return partial(self.state.selects, key)

    # -- pods --------------------------------------------------------------------------------------

    def _resize(self, pool: PoolState, stateful_set: StatefulSet, replicas: int) -> None:
        self._feed(replace(stateful_set, replicas=replicas))
        self._stand(pool)

    def _stand(self, pool: PoolState) -> None:
        """Give each ordinal a pod that stands on a node, and remove all other pods."""
        stateful_set = pool.stateful_set
        if pool.adapter_pool is None or stateful_set is None:
            return
        wanted = {f"{stateful_set.name}-{ordinal}": ordinal for ordinal in stateful_set.ordinals}
        for name in [
            name for name, pod in pool.pods.items() if pod.pod is not None and name not in wanted
        ]:
            key = object_key(stateful_set.namespace, name)
            if (old := self._objects.pop((MODEL, key), None)) is not None:
                object_changed(self.state, old, None)
        for name, ordinal in wanted.items():
            key = object_key(stateful_set.namespace, name)
            old = self._objects.get((MODEL, key))
            new = self._pod(
                pool, stateful_set, ordinal, old if isinstance(old, AdapterPod) else None
            )
            if new != old:
                self._objects[MODEL, key] = new
                object_changed(self.state, old, new)

    def _pod(
        self, pool: PoolState, stateful_set: StatefulSet, ordinal: int, old: AdapterPod | None
    ) -> AdapterPod:
        name = f"{stateful_set.name}-{ordinal}"
        recorded = self._recorded_pods.get(object_key(stateful_set.namespace, name))
        stood = [
            pod.node for pod in (recorded, old) if pod is not None and pod.node in self.state.nodes
        ]
        node = stood[0] if stood else self._emptiest(pool)
        known = recorded if recorded is not None and recorded.pool == pool.key else old
        if known is None:
            return AdapterPod(
                namespace=stateful_set.namespace,
                name=name,
                uid=f"model-{name}",
                pool=pool.key,
                owner=stateful_set.name,
                owner_uid=stateful_set.uid,
                ordinal=ordinal,
                node=node,
                ready=True,
            )
        drained = recorded is not None and recorded.unschedulable
        return replace(
            without_ledger(self._changes.of_pod(known)),
            uid=f"model-{name}",
            resource_version="",
            node=node,
            assumed=False,
            unschedulable=drained,
            deleting=False,
            finished=False,
            ready=True,
            ready_since="",
        )

    def _emptiest(self, pool: PoolState) -> str:
        """The node for a pod that the recording does not have: in the zone with the fewest pods,
        the node with the fewest; "" if there is no node.
        """
        zones: dict[str, int] = {}
        nodes: dict[str, int] = {}
        for pod in pool.pods.values():
            if pod.pod is not None and pod.pod.node:
                node, zone = pod.where
                zones[zone] = zones.get(zone, 0) + 1
                nodes[node] = nodes.get(node, 0) + 1
        hosting = pool.hosting.zone_of
        return min(
            hosting,
            key=lambda name: (zones.get(hosting[name], 0), nodes.get(name, 0), name),
            default="",
        )


def _unsettled(pool: PoolState) -> Iterable[str]:
    """Vpods that wait, and vpods on pods that they have to leave."""
    found = dict.fromkeys(pool.vpods_with_pending)
    for pod in pool.pods.values():
        if pod.decided and (pod.leaving or not pool.is_member(pod) or pod.decided > pod.capacity):
            found |= {key: None for key, claim in pod.claims.items() if claim.decided.vreplicas}
    return list(found)
