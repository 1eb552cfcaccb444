"""Vpods that have changed to another pool still publish pods of their old one: the next pod there
covers them (I2).
"""

from extender.engine.scaling.size import anyone
from extender.model.ledger import Share
from extender.node.bind_ledger import bind_ledger_of
from tests.support.builders import NS, POOL, Scene, a_vpod


def test_a_pod_that_is_bound_anew_carries_what_vpods_of_other_pools_still_publish():
    scene = Scene(slots=4).pod(0, node="").vpod("b", 2, {0: 2})
    scene.state.vpod_changed(None, a_vpod("a", 3, {0: 3}, pool=f"{NS}/other"))
    placements_from_former_pool = scene.state.placements_from_former_pool(POOL, "dispatcher-0")
    assert placements_from_former_pool == {"tenant/a": Share(3)}
    pod = scene.pool.pods["dispatcher-0"].pod
    assert pod is not None
    bind_ledger = bind_ledger_of(
        scene.pool,
        pod,
        slots=4,
        with_added=False,
        allows=anyone,
        placements_from_former_pool=placements_from_former_pool,
    )
    assert bind_ledger.ledger == {"tenant/b": Share(2), "tenant/a": Share(2)}, (
        "its own first, and never over its slots"
    )
