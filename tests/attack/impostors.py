"""Pods with a pool's label that no StatefulSet owns: on a node already, with all the slots in the
world.

One has the name of an ordinal that is needed, so the StatefulSet cannot make its own.
"""

import asyncio
import logging
from typing import Final

from extender.kube.api import NODES, PODS, VPODS, ApiError
from extender.model.decode import vpod_from
from extender.model.names import PLACEMENTS_ANNOTATION, POOL_LABEL, SLOTS_ANNOTATION
from tests.attack.target import Target
from tests.e2e.objects import pod
from tests.e2e.waiting import NotYet

log = logging.getLogger(__name__)

POOL: Final = "filled"
SLOTS: Final = 2**31 - 1
VREPLICAS: Final = 60
ORDINALS: Final = (1, 4, 5)
PLACED: Final = 40
"""Of them: all that does not go to the ordinal which an impostor holds."""
SETTLED_WITHIN_S: Final = 30.0
WATCHED_S: Final = 3.0


async def play(target: Target) -> list[str]:
    """What is wrong: work that went to a pod which nobody owns."""
    system, wrong = target.system, []
    namespace = await system.pool(POOL, maxPods=5)
    api = system.backend.api
    (node, *_) = (await api.list_page(NODES)).items
    names = [f"{POOL}-{ordinal}" for ordinal in ORDINALS]
    made = []
    for name in names:
        impostor = pod(namespace, name, nodeName=node["metadata"]["name"])
        impostor["metadata"]["labels"] = {POOL_LABEL: POOL}
        impostor["metadata"]["annotations"] = {SLOTS_ANNOTATION: str(SLOTS)}
        try:
            await api.create(PODS, namespace, impostor)
            made.append(name)
        except ApiError as refused:
            log.info("%s is refused: %s", name, str(refused)[:100])
            del impostor["metadata"]["annotations"]
            await api.create(PODS, namespace, impostor)
            made.append(name)
    tenant = await system.vpods(1, VREPLICAS, prefix="filling", pool=POOL)

    async def placed() -> dict[str, int]:
        vpod = vpod_from(await api.get(VPODS, tenant, "filling-0"))
        if sum(vpod.placements.values()) < PLACED:
            raise NotYet(str(vpod.placements))
        return dict(vpod.placements)

    try:
        placements = await system.eventually(
            placed, SETTLED_WITHIN_S, "placed on pods of the StatefulSet"
        )
    except TimeoutError as error:
        return [str(error)]
    await asyncio.sleep(WATCHED_S)
    placements = await placed()
    if misplaced := placements.keys() & set(made):
        wrong.append(f"{sorted(misplaced)} have {placements}")
    for name in made:
        stored = await api.get(PODS, namespace, name)
        if stored["metadata"].get("annotations", {}).get(PLACEMENTS_ANNOTATION, "{}") != "{}":
            wrong.append(f"{name} has a ledger: {stored['metadata']['annotations']}")
    log.info("%d impostors, and vreplicas on %s", len(made), dict(sorted(placements.items())))
    await asyncio.gather(*(api.delete(PODS, namespace, name) for name in made))
    return wrong
