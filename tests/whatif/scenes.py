"""Pools in which something waits, drawn; and how a fix is made by hand, from nothing but what it
says.
"""

from dataclasses import replace

from hypothesis import strategies as st

from extender.engine.placing.plan import Decision
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits, MovePlan
from extender.engine.rebalance.relocation import relocations
from extender.engine.scaling.size import plan_scale
from extender.engine.state.cluster_state import ClusterState
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.model.objects import AdapterPool, VPod
from extender.whatif.fix import Fix
from extender.whatif.growth import add_pods, autoscale, bind, bind_missing, held_back
from extender.whatif.settling import commit
from extender.whatif.snapshot import Snapshot
from extender.whatif.trial import Trial
from tests.support.builders import POOL, Scene, a_node
from tests.support.placing import place
from tests.support.worlds import limits

KEY = "tenant/a"
PROFILES = ("default", "pack", "spread", "ha")


@st.composite
def scenes(draw) -> Scene:
    """A pool of up to five pods in up to three zones, some marked or on bad nodes, with vpods of
    which ``a`` wants much.
    """
    replicas, slots = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    most = draw(st.sampled_from([None, replicas, replicas + 1]))
    scene = Scene(
        replicas=replicas, slots=slots, profile=draw(st.sampled_from(PROFILES)), max_pods=most
    )
    for index in range(draw(st.integers(1, 4))):
        state = draw(st.sampled_from(["", "", "", "cordoned", "away"]))
        scene.node(
            a_node(
                f"n{index}", f"z{index % 3}", cordoned=state == "cordoned", ready=state != "away"
            )
        )
    nodes = sorted(scene.state.nodes)
    for ordinal in range(replicas):
        kind = draw(st.sampled_from(["", "", "", "", "marked", "pending", "missing", "stamped"]))
        if kind == "missing":
            continue
        node = "" if kind == "pending" else draw(st.sampled_from(nodes))
        stamp = {"slots": slots, "slots_request": slots} if kind == "stamped" else {}
        scene.pod(ordinal, {}, node=node, unschedulable=kind == "marked", **stamp)
    for name in ("b", "c", "d")[: draw(st.integers(0, 3))]:
        scene.vpod(
            name, draw(st.integers(1, 6)), weight=draw(st.sampled_from([1, 1, 2])), generation=1
        )
        if draw(st.booleans()):
            settle(scene.state, f"tenant/{name}")
    fields = {"weight": draw(st.sampled_from([1, 1, 2, 3])), "max_per_pod": draw(limits)}
    scene.vpod("a", draw(st.integers(1, 20)), generation=1, **fields)
    if draw(st.booleans()):
        settle(scene.state, KEY)
    if draw(st.integers(0, 3)) == 0:
        vpod = scene.pool.vpods[KEY]
        scene.state.vpod_changed(vpod, replace(vpod, vreplicas=vpod.vreplicas + 3))
    return scene


def settle(state: ClusterState, key: str) -> Decision:
    """Decide a vpod and reserve it."""
    pool = next(pool for pool in state.pools.values() if key in pool.vpods)
    vpod = pool.vpods[key]
    decision = place(pool, vpod, allowed=state.selects(pool.key, vpod))
    pool.reserve("settled", key, decision.shares(pool.decided_of(key)), expires_at=1e9)
    return decision


def after(scene: Scene, fix: Fix, value: object) -> Decision | None:
    """What the vpod gets once the fix is made with this value, on a state of its own; None where it
    cannot be made.
    """
    state = Snapshot.of(scene.state, [POOL]).state()
    rivals = [] if fix.alone else [key for key in state.pool(POOL).vpods_with_pending if key != KEY]
    turns = [*rivals, KEY]
    if not make(state, fix, value, turns):
        return None
    decision = settle_all(state, turns)
    by_a_person = not fix.by_itself and fix.field not in PODS_THAT_COME
    if decision.pending and by_a_person and not helps_itself(scene, turns):
        return come_to_rest(state, turns)
    return decision


PODS_THAT_COME = {
    "spec.replicas",
    "spec.maxPods",
    "spec.nodeName",
    "the autoscaler's closed ordinals",
}
"""Fields of fixes that are about pods: what a person changes otherwise is judged by what the
cluster comes to.
"""


def settle_all(state: ClusterState, turns: list[str]) -> Decision:
    """Decide them in turn; what the last one gets."""
    return [settle(state, key) for key in turns][-1]


def come_to_rest(state: ClusterState, turns: list[str]) -> Decision:
    """Pods that wait are bound, the autoscaler adds what it needs, and what waits is decided."""
    pool = state.pool(POOL)
    if held_back(pool, state):
        return settle(state, KEY)
    bind_missing(Trial(state), pool)
    settle_all(state, turns)
    for _ in range(10):
        plan = plan_scale(pool)
        assert pool.stateful_set is not None
        if plan is None or plan.wanted <= pool.stateful_set.replicas:
            break
        if not add_pods(Trial(state), pool, plan.wanted - pool.stateful_set.replicas):
            break
        for key in turns:
            if key in pool.vpods_with_pending:
                settle(state, key)
    return settle(state, KEY)


def helps_itself(scene: Scene, turns: list[str]) -> bool:
    """Whether the vpod gets all without any change."""
    state = Snapshot.of(scene.state, [POOL]).state()
    settle_all(state, turns)
    return not come_to_rest(state, turns).pending


def make(state: ClusterState, fix: Fix, value: object, turns: list[str]) -> bool:  # noqa: C901 - one case a field
    """Do what the fix says."""
    trial, pool = Trial(state), state.pool(POOL)
    spec = pool.adapter_pool
    assert spec is not None
    match fix.field:
        case "spec.replicas":
            assert pool.stateful_set is not None
            assert isinstance(value, int)
            count = value - pool.stateful_set.replicas
            return len(add_pods(trial, pool, count)) == count if count else True
        case "spec.maxPods":
            assert isinstance(value, int)
            trial.exchange(spec, replace(spec, max_pods=value))
            bind_missing(trial, pool)
            autoscale(trial, pool, turns)
        case "spec.slotsPerPod":
            assert isinstance(value, int)
            _restart_with(state, spec, value)
        case "spec.profile":
            trial.exchange(spec, replace(spec, profile=str(value)))
        case "spec.vreplicas":
            _edit(state, vreplicas=value)
        case "spec.placement.maxPerPod":
            _edit(state, max_per_pod=value)
        case "spec.slotsPerVReplica":
            _edit(state, weight=value)
        case "spec.unschedulable":
            for node in _named(fix, "Node"):
                state.node_changed(state.nodes[node], replace(state.nodes[node], cordoned=False))
            if fix.note:
                return bool(bind_missing(trial, pool))
        case "status.conditions[Ready]":
            for node in _named(fix, "Node"):
                state.node_changed(
                    state.nodes[node], replace(state.nodes[node], cordoned=False, ready=True)
                )
        case "spec.nodeName":
            bound = bind_missing_of(trial, state, _named(fix, "Pod"))
            return bound == len(_named(fix, "Pod"))
        case "the evictor's moves with the reason MakeRoom":
            assert isinstance(value, int)
            return move_away(state, value) == value
        case _ if fix.field == f"metadata.annotations[{UNSCHEDULABLE_ANNOTATION}]":
            for key in _named(fix, "Pod"):
                pod = pool.pods[key.rpartition("/")[2]].pod
                assert pod is not None
                state.pod_changed(pod, replace(pod, unschedulable=False))
        case _ if fix.field.startswith("filters["):
            filters = tuple(
                replace(one, max_skew=value)  # type: ignore[type-var]
                for one in pool.profile.filters
            )
            pool.set_profile(replace(BUILT_IN_PROFILES[pool.profile.name], filters=filters))
        case _:
            raise AssertionError(f"how is {fix.field} changed?")
    return True


def move_away(state: ClusterState, count: int) -> int:
    """Make at most so many moves that give the vpod room, in as many periods as it takes. Return
    how many were made.
    """
    pool, made = state.pool(POOL), 0
    for key, vpod in list(pool.vpods.items()):
        if pool.decided_vreplicas(key):
            commit(state, pool, [place(pool, vpod)])  # the evictor moves only what is published
    for _ in range(count):
        plan = MovePlan(pool, Limits(budget=count - made))
        plan.rooms_for(KEY)
        for decision in relocations(pool, plan.moves):
            commit(state, pool, [decision])
            made += sum(move.vreplicas for move in decision.moves)
    return made


def bind_missing_of(trial: Trial, state: ClusterState, keys: list[str]) -> int:
    ordinals = [int(key.rpartition("-")[2]) for key in keys]
    return len(bind(trial, state.pool(POOL), ordinals))


def _named(fix: Fix, kind: str) -> list[str]:
    found = [one.split(" ", 1) for one in fix.subject.split(", ")]
    assert {one[0] for one in found} == {kind}
    return [one[1] for one in found]


def _edit(state: ClusterState, **fields) -> None:
    vpod: VPod = state.pool(POOL).vpods[KEY]
    state.vpod_changed(vpod, replace(vpod, **fields, generation=2))


def _restart_with(state: ClusterState, spec: AdapterPool, slots: int) -> None:
    state.adapter_pool_changed(spec, replace(spec, slots_per_pod=slots))
    for known in list(state.pool(POOL).pods.values()):
        if known.pod is not None and known.pod.slots is not None:
            state.pod_changed(known.pod, replace(known.pod, slots=slots, slots_request=slots))
