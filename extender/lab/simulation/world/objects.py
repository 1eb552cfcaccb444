"""AdapterPools and VPods of a simulated world, as people apply them. ``streams`` has the
Streams.
"""

from typing import Any, Final
from zlib import crc32

from extender.kube.api import Obj
from extender.lab.simulation.world.scale import NAME, NS

AMOUNTS: Final[tuple[Obj, ...]] = (
    {},
    {"cpu": 1},
    {"cpu": 3},
    {"memory": 5},
    {"cpu": 1, "memory": 2},
    {"cpu": 2, "memory": 7},
)


def pool_object(pool: str = NAME, /, **spec: Any) -> Obj:
    """Return an AdapterPool of the StatefulSet with the same name."""
    return {"metadata": {"name": pool}, "spec": {"statefulSet": pool, **spec}}


def vpod_object(
    name: str, vreplicas: int, weight: int = 1, pool: str = NAME, *, dimensions: bool = False
) -> Obj:
    """Return a VPod of one of the pools. ``dimensions``: what one vreplica takes of them depends on
    the name alone, so it is the same for a VPod that is created again.
    """
    spec: Obj = {
        "poolRef": {"namespace": NS, "name": pool},
        "vreplicas": vreplicas,
        "slotsPerVReplica": weight,
    }
    amounts = AMOUNTS[crc32(name.encode()) % len(AMOUNTS)] if dimensions else {}
    return {
        "metadata": {"name": name},
        "spec": {**spec, "perVReplica": amounts} if amounts else spec,
    }
