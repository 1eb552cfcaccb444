"""For authors of adapters: what vreplica-scheduler places on this pod, prepared, served, drained
and acknowledged. README.md begins with a worker in forty lines.
"""

from vreplica_adapter.adapter import Adapter
from vreplica_adapter.fields import WireError
from vreplica_adapter.progress import Limits, Problem
from vreplica_adapter.resolver import Resolver, Unresolved
from vreplica_adapter.service import ServiceError
from vreplica_adapter.share import Share
from vreplica_adapter.timing import Timing
from vreplica_adapter.wire import Intent, PlacedPod, Placements, State

__all__ = [
    "Adapter",
    "Intent",
    "Limits",
    "PlacedPod",
    "Placements",
    "Problem",
    "Resolver",
    "ServiceError",
    "Share",
    "State",
    "Timing",
    "Unresolved",
    "WireError",
]
