"""AdapterPools and VPods of a simulated world, as people apply them. ``streams`` has the
Streams.
"""

from typing import Any

from extender.kube.api import Obj
from extender.lab.simulation.world.scale import NAME, NS


def pool_object(pool: str = NAME, /, **spec: Any) -> Obj:
    """Return an AdapterPool of the StatefulSet with the same name."""
    return {"metadata": {"name": pool}, "spec": {"statefulSet": pool, **spec}}


def vpod_object(name: str, vreplicas: int, weight: int = 1, pool: str = NAME) -> Obj:
    """Return a VPod of one of the pools."""
    ref = {"namespace": NS, "name": pool}
    return {
        "metadata": {"name": name},
        "spec": {"poolRef": ref, "vreplicas": vreplicas, "slotsPerVReplica": weight},
    }
