"""AdapterPools and VPods of a simulated world, as people apply them. Streams are ``streams``'s."""

from typing import Any

from extender.kube.api import Obj
from extender.lab.simulation.world.scale import NAME, NS


def pool_object(pool: str = NAME, /, **spec: Any) -> Obj:
    """An AdapterPool of the StatefulSet with its name."""
    return {"metadata": {"name": pool}, "spec": {"statefulSet": pool, **spec}}


def vpod_object(name: str, vreplicas: int, weight: int = 1, pool: str = NAME) -> Obj:
    """A VPod of one of the pools."""
    ref = {"namespace": NS, "name": pool}
    return {
        "metadata": {"name": name},
        "spec": {"poolRef": ref, "vreplicas": vreplicas, "slotsPerVReplica": weight},
    }
