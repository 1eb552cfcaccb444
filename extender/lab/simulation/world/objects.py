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


def amounts_of(name: str) -> Obj:
    """Return what one vreplica of the vpod takes of dimensions. It depends on the name alone, so it
    is the same for an object that is created again.
    """
    return AMOUNTS[crc32(name.encode()) % len(AMOUNTS)]


def limit_of(name: str) -> int:
    """Return the maxPerPod of the vpod; 0 for none. It depends on the name alone, too."""
    return crc32(name.encode()) // len(AMOUNTS) % 4


def vpod_object(
    name: str,
    vreplicas: int,
    weight: int = 1,
    pool: str = NAME,
    *,
    dimensions: bool = False,
    limits: bool = False,
) -> Obj:
    """Return a VPod of one of the pools. ``dimensions``: whether it has ``amounts_of`` its name.
    ``limits``: whether it has ``limit_of`` its name.
    """
    spec: Obj = {
        "poolRef": {"namespace": NS, "name": pool},
        "vreplicas": vreplicas,
        "slotsPerVReplica": weight,
    }
    if limits and (most := limit_of(name)):
        spec["placement"] = {"maxPerPod": most}
    amounts = amounts_of(name) if dimensions else {}
    return {
        "metadata": {"name": name},
        "spec": {**spec, "perVReplica": amounts} if amounts else spec,
    }
