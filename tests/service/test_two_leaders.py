"""Two that believe to lead decide about the same vpod: what one has published, the other does not
undo without a word (I4).
"""

import asyncio

from extender.kube.api import VPODS
from extender.model.ledger import Share
from tests.service.placing.test_committer import a_decision, commit
from tests.support.service import TENANT, a_world


async def test_a_move_that_another_leader_has_made_otherwise_is_not_published_over_it():
    world = await a_world(0)
    await world.pod(1, {"tenant/a": Share(2)}, node="node-1")
    await world.pod(2, {"tenant/a": Share(2)}, node="node-2")
    await world.vpod("a", 2, {2: 2})
    await world.sync()
    paused = world.api.pause("patch", "pods", "dispatcher-0")
    moving = asyncio.create_task(commit(world, a_decision("a", {0: 2})))
    await paused.reached.wait()
    status = {"placements": [{"podName": "dispatcher-1", "vreplicas": 2}]}
    await world.patch_status(VPODS, TENANT, "a", **status)
    await world.sync("vpods")
    paused.go_on.set()
    await moving
    assert await world.published() == {1: 2}
