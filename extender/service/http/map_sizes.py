"""A gauge of the sizes of maps that follow objects which come and go: none may grow while the
number of objects does not.

Whoever names pools, vpods or pods decides how many entries these maps get. Each entry must end with
its object. The soak test checks this, and an alert may too.
"""

from collections.abc import Callable
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.ordinal_history import OrdinalHistory
from extender.service.placing.activation import Activation
from extender.service.placing.handovers import HandOvers
from extender.service.placing.queue import VPodQueues
from extender.service.pools.load_reports import LoadReports
from extender.service.pools.quarantine import Quarantine
from extender.service.watching.own_writes import OwnWrites
from extender.service.watching.sources import ForeignSources
from extender.telemetry.exposition import Label
from extender.telemetry.metrics import Metrics

MAP_VALUES: Final = (
    "queues",
    "pool_states",
    "named_stateful_sets",
    "changed_nodes",
    "raised_pools",
    "pools_with_sources",
    "ledger_writes",
    "known_ordinals",
    "load_shares",
    "hand_overs",
    "crash_shares",
)


def add_map_sizes_gauge(  # noqa: PLR0913 (each is a different collaborator)
    metrics: Metrics,
    state: ClusterState,
    *,
    queues: VPodQueues,
    activation: Activation,
    sources: ForeignSources,
    own_writes: OwnWrites,
    ordinal_history: OrdinalHistory,
    load: LoadReports,
    hand_overs: HandOvers,
    quarantine: Quarantine,
) -> None:
    """Declare the gauge."""
    sizes: dict[str, Callable[[], int]] = {
        "queues": lambda: len(queues),
        "pool_states": lambda: len(state.pools),
        "named_stateful_sets": lambda: state.stateful_set_index.named,
        "changed_nodes": lambda: state.node_index.to_look_at,
        "raised_pools": lambda: activation.raised_pools,
        "pools_with_sources": lambda: sources.pools_with_conditions,
        "ledger_writes": lambda: len(own_writes),
        "known_ordinals": lambda: len(ordinal_history),
        "load_shares": load.shares,
        "hand_overs": lambda: len(hand_overs),
        "crash_shares": lambda: len(quarantine),
    }
    metrics.gauge(
        "kept_entries",
        "Entries of maps that end with their objects, by map",
        Label("map", MAP_VALUES),
        lambda: {name: float(size()) for name, size in sizes.items()},
    )
