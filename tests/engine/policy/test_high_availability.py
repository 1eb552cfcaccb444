"""What profile ``ha`` promises: on 3 zones x 2 nodes the loss of one zone takes at most ceil(1/3) +
1 of any vpod.
"""

from hypothesis import given, settings, strategies as st

from extender.engine.placing.grow import grow_by_plugins
from extender.engine.placing.select import shrink
from extender.engine.policy.profiles import HA_PROFILE
from extender.model.ledger import Share
from tests.engine.policy.shapes import by_zone
from tests.support.builders import POOL, Scene, a_node, a_vpod

ZONES, NODES_A_ZONE = 3, 2


@st.composite
def workloads(draw) -> tuple[Scene, list[tuple[str, int, int]]]:
    """A pool with pods anywhere and of uneven room, and vpods (name, weight, wanted) that grow and
    shrink in turn.
    """
    pods = draw(st.integers(1, 9))
    slots = draw(st.integers(2, 12))
    scene = Scene(replicas=pods, slots=slots)
    scene.state.node_changed(a_node(), None)
    for index in range(ZONES * NODES_A_ZONE):
        scene.node(a_node(f"n{index}", f"z{index % ZONES}"))
    for ordinal in range(pods):
        others = draw(st.integers(0, slots))
        node = draw(st.integers(0, ZONES * NODES_A_ZONE - 1))
        scene.pod(ordinal, {"tenant/other": others} if others else None, node=f"n{node}")
    weights = {name: draw(st.sampled_from([1, 1, 2])) for name in "abc"}
    steps = draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 14)), min_size=1, max_size=10)
    )
    return scene, [(name, weights[name], wanted) for name, wanted in steps]


def decide(scene: Scene, name: str, weight: int, wanted: int) -> dict[str, int]:
    """Take vpod ``name`` to what it wants as far as the pool allows, and hold the result as its
    reservation.
    """
    pool = scene.pool
    vpod = a_vpod(name, wanted, weight=weight)
    placed = pool.decided_of(vpod.key)
    surplus = sum(placed.values()) - wanted
    after = dict(placed)
    if surplus > 0:
        for pod, count in shrink(pool, vpod, placed, surplus, HA_PROFILE).items():
            after[pod] -= count
    elif surplus < 0:
        added, _ = grow_by_plugins(pool, vpod, placed, -surplus, pool.free_of, HA_PROFILE)
        for ordinal, count in added.items():
            pod = f"dispatcher-{ordinal}"
            after[pod] = after.get(pod, 0) + count
    shares = {pod: Share(count, weight) for pod, count in after.items()}
    scene.state.reserve("test", POOL, vpod.key, shares, expires_at=1e9)
    return pool.decided_of(vpod.key)


@settings(max_examples=120, deadline=None)
@given(workloads())
def test_losing_any_zone_takes_at_most_a_third_and_one_of_any_vpod(workload):
    scene, steps = workload
    for name, weight, wanted in steps:
        placed = decide(scene, name, weight, wanted)
        total = sum(placed.values())
        assert total <= wanted
        lost = max(by_zone(scene.pool, placed).values(), default=0)
        assert lost <= -(-total // ZONES) + 1
        # What the hard rule itself says is tighter.
        assert lost <= -(-total // ZONES)


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_every_pod_stays_within_its_slots(workload):
    scene, steps = workload
    for name, weight, wanted in steps:
        decide(scene, name, weight, wanted)
        assert all(pod.decided <= pod.capacity for pod in scene.pool.pods.values())


def test_with_room_everywhere_all_is_placed_evenly_over_zones_and_nodes():
    scene = Scene(replicas=6, slots=20)
    scene.state.node_changed(a_node(), None)
    for index in range(6):
        scene.node(a_node(f"n{index}", f"z{index % 3}"))
        scene.pod(index, node=f"n{index}")
    assert set(decide(scene, "a", 1, 12).values()) == {2}
