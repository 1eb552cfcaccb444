"""Gauges of pools: pods by state, slots, and vreplicas that wait.

Every replica reports every pool as it sees it, so take the maximum over replicas. A pool is counted
once per change, by the revision of its state.

Anybody who may create AdapterPools names pools; in many clusters, that includes admins of
namespaces. So only the first ``POOLS_NAMED_MAX`` pools seen have series of their own; the others
are added up as ``other``. Pools that do not exist are named by tenants in their vpods: all of them
together are ``missing``, while there are any.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import awaits_acknowledgement
from extender.model.objects import AdapterPool
from extender.service.pools.load_polling import QUERY_RESULTS, LoadPolling
from extender.service.pools.load_reports import RESULTS, LoadReports, LoadSummary
from extender.service.pools.pool_status import pool_numbers
from extender.telemetry.exposition import OTHER, Family, Kind, Label, Stability
from extender.telemetry.metrics import Metrics

POOLS_NAMED_MAX: Final = 200
UNSERVED_PERIOD_S: Final = 1.0
POD_STATE_VALUES: Final = ("schedulable", "unschedulable", "pending", "expected")
SLOT_STATE_VALUES: Final = ("total", "used", "free", "closed", "reserved")
MISSING: Final = "missing"
"""Label of vpods whose AdapterPool does not exist. No pool has this key, because keys contain a
slash.
"""
POOL: Final = Label(
    "pool",
    description=f"namespace/name of AdapterPools, {POOLS_NAMED_MAX} at the most, then `{OTHER}`; "
    f"`{MISSING}`: those that vpods name and that do not exist",
)


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """A pool at one revision of its state."""

    state: PoolState
    revision: tuple[int, int]
    pods: Mapping[str, int]
    """By ``POD_STATE_VALUES``."""
    slots: Mapping[str, int]
    """By ``SLOT_STATE_VALUES``."""
    pending: int
    ready: int
    """vreplicas that are placed and served."""
    unserved: int
    """vreplicas that are placed and not served."""
    unavailable: int
    """vpods with unserved vreplicas."""
    vpods: int
    replicas: int
    """Of the StatefulSet's spec."""
    unacknowledged: int
    """Pods whose adapter has not acknowledged their newest assignment."""


class PoolGauges:
    """The numbers of all pools, each counted once per change, with a limit on the pools that are
    named.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, PoolNumbers] = {}
        self._named: dict[str, None] = {}

    def read(self) -> list[tuple[str, PoolNumbers]]:
        """(label, numbers) of every pool that exists or that vpods name. Several may have the label
        ``other`` or ``missing``.
        """
        pools = self.labelled()
        for gone in self._known.keys() - {state.key for _, state in pools}:
            del self._known[gone]
        return [(label, self._look(state.key, state)) for label, state in pools]

    def labelled(self) -> list[tuple[str, PoolState]]:
        """Label and state of the same pools."""
        pools = {
            key: state
            for key, state in self._state.pools.items()
            if state.adapter_pool is not None or state.vpods
        }
        for gone in [
            key for key in self._named if key not in pools or pools[key].adapter_pool is None
        ]:
            del self._named[gone]
        return [(self._label(key, state), state) for key, state in pools.items()]

    def _label(self, key: str, state: PoolState) -> str:
        if state.adapter_pool is None:
            return MISSING
        if key in self._named or len(self._named) < POOLS_NAMED_MAX:
            self._named[key] = None
            return key
        return OTHER

    def _look(self, key: str, state: PoolState) -> PoolNumbers:
        revision = self._state.revision_of(state)
        known = self._known.get(key)
        if known is None or known.state is not state or known.revision != revision:
            known = self._known[key] = numbers_of(state, revision)
        return known


class UnservedTime:
    """Adds up for how long vreplicas were placed and not served, each ``UNSERVED_PERIOD_S``. It
    counts a pod that restarts, which the gauge excuses for a while, and what an adapter has not
    begun to serve. ``clock``: seconds. ``unserved_shares``: pool -> vreplicas that adapters on pods
    that are Ready do not serve.

    ``seconds``: by label, since this replica knows the pool.
    """

    def __init__(
        self,
        gauges: PoolGauges,
        clock: Callable[[], float],
        unserved_shares: Callable[[str], int],
    ) -> None:
        self._gauges = gauges
        self._unserved_shares = unserved_shares
        self._clock = clock
        self.seconds: dict[str, float] = {}

    async def run(self) -> None:
        """Add up until cancelled."""
        before = self._clock()
        while True:
            await asyncio.sleep(UNSERVED_PERIOD_S)
            now = self._clock()
            seconds: dict[str, float] = {}
            for label, state in self._gauges.labelled():
                since = seconds.get(label, self.seconds.get(label, 0.0))
                not_served = _not_served(state) + self._unserved_shares(state.key)
                seconds[label] = since + not_served * (now - before)
            self.seconds, before = seconds, now


def _not_served(state: PoolState) -> int:
    """The vreplicas that are published on pods that do not serve now."""
    return sum(
        claim.published
        for pod in state.pods.values()
        if not pod.serving
        for claim in pod.claims.values()
    )


def numbers_of(state: PoolState, revision: tuple[int, int] = (0, 0)) -> PoolNumbers:
    """Count a pool's pods, slots and vreplicas."""
    numbers = pool_numbers(state)
    members = list(state.members())
    there = [pod for pod in members if pod.pod is not None]
    pending = sum(pod.awaits_node for pod in there)
    schedulable = numbers["schedulablePods"]
    replicas = len(state.stateful_set.ordinals) if state.stateful_set is not None else 0
    claims = [claim for pod in state.pods.values() for claim in pod.claims.values()]
    reserved = sum(claim.reserved.slots for claim in claims if claim.reserved is not None)
    return PoolNumbers(
        state=state,
        revision=revision,
        pods={
            "schedulable": schedulable,
            "unschedulable": len(there) - pending - schedulable,
            "pending": pending,
            "expected": replicas - len(there),
        },
        slots={
            "total": numbers["slots"],
            "used": numbers["usedSlots"],
            "free": numbers["freeSlots"],
            "closed": numbers["closedSlots"],
            "reserved": reserved,
        },
        pending=numbers["pendingVReplicas"],
        ready=numbers["readyVReplicas"],
        unserved=numbers["unservedVReplicas"],
        unavailable=numbers["unavailableVPods"],
        vpods=numbers["vpods"],
        replicas=replicas,
        unacknowledged=sum(
            awaits_acknowledgement(pod.pod.assignment_text, pod.pod.acknowledged_text)
            for pod in there
            if pod.pod is not None
        ),
    )


def add_pool_gauges(
    metrics: Metrics,
    state: ClusterState,
    clock: Callable[[], float],
    unserved_shares: Callable[[str], int],
) -> UnservedTime:
    """Declare the gauges. The caller runs what is returned. ``unserved_shares``: see
    ``UnservedTime``.
    """
    gauges = PoolGauges(state)
    unserved_time = UnservedTime(gauges, clock, unserved_shares)

    def declare(
        name: str,
        documentation: str,
        amounts: Callable[[PoolNumbers], Mapping[str, int]],
        *labels: Label,
    ) -> None:
        def read() -> dict[tuple[str, ...], float]:
            summed: dict[tuple[str, ...], float] = {}
            for pool, numbers in gauges.read():
                for value, amount in amounts(numbers).items():
                    key = (pool, value) if labels else (pool,)
                    summed[key] = summed.get(key, 0.0) + amount
            return summed

        metrics.read(
            Family(
                name=name,
                kind=Kind.GAUGE,
                documentation=documentation,
                labels=(POOL, *labels),
                stability=Stability.BETA,
            ),
            read,
        )

    declare(
        "pool_pods",
        "Adapter pods of a pool, by what they are good for; expected: asked for and not created "
        "yet",
        lambda numbers: numbers.pods,
        Label("state", POD_STATE_VALUES),
    )
    declare(
        "pool_slots",
        "Slots of a pool: of its bound pods (total), taken by placed vreplicas (used), free on "
        "pods that take new ones (free), "
        "left over on the others, or where the ledger has no bytes left (closed), "
        "decided and not written yet (reserved, a part of used)",
        lambda numbers: numbers.slots,
        Label("state", SLOT_STATE_VALUES),
    )
    declare(
        "pool_pending_vreplicas", "vreplicas without a place", lambda numbers: {"": numbers.pending}
    )
    declare(
        "pool_ready_vreplicas",
        "vreplicas that are placed on pods that serve them",
        lambda numbers: {"": numbers.ready},
    )
    declare(
        "pool_unserved_vreplicas",
        "vreplicas that are placed on pods that are not Ready, or terminating, or on a lost node, "
        "or, with `handoff`, whose adapter has not begun to serve them in time",
        lambda numbers: {"": numbers.unserved},
    )
    declare(
        "pool_unavailable_vpods",
        "vpods with vreplicas that are placed and that nobody serves",
        lambda numbers: {"": numbers.unavailable},
    )
    declare("pool_vpods", "vpods that refer to the pool", lambda numbers: {"": numbers.vpods})
    declare(
        "pool_unacknowledged_pods",
        "Adapter pods of a pool with `handoff` that have not acknowledged their newest assignment",
        lambda numbers: {"": numbers.unacknowledged},
    )
    declare(
        "pool_replicas",
        "Pods that the StatefulSet is asked for",
        lambda numbers: {"": numbers.replicas},
    )
    metrics.counter(
        "pool_unserved_vreplica_seconds",
        "Seconds during which a vreplica was placed on a pod that did not serve it, or, with "
        "`handoff`, whose adapter had not acknowledged that it serves it, added up over the "
        "vreplicas of a pool; unlike `pool_unserved_vreplicas`, from the first second",
        POOL,
        lambda: unserved_time.seconds,
    )
    return unserved_time


def add_load_gauges(
    metrics: Metrics, state: ClusterState, reports: LoadReports, polling: LoadPolling
) -> None:
    """Declare what is known of load: of the pools that this replica leads and balances."""
    gauges = PoolGauges(state)

    def declare(
        name: str, documentation: str, amount: Callable[[AdapterPool], float | None]
    ) -> None:
        def read() -> dict[tuple[str, ...], float]:
            found: dict[tuple[str, ...], float] = {}
            for pool, numbers in gauges.read():
                known = numbers.state.adapter_pool
                value = amount(known) if known is not None else None
                if value is not None:
                    # Several may be ``other``.
                    found[(pool,)] = max(found.get((pool,), 0.0), value)
            return found

        metrics.read(
            Family(name=name, kind=Kind.GAUGE, documentation=documentation, labels=(POOL,)), read
        )

    def of_summary(
        amount: Callable[[LoadSummary], float],
    ) -> Callable[[AdapterPool], float | None]:
        def read(pool: AdapterPool) -> float | None:
            summary = reports.summary(pool)
            return amount(summary) if summary is not None else None

        return read

    declare(
        "pool_load_ratio",
        "Load of the hottest pod of a pool with `rebalance.load`, in means of its pods; from its "
        "leader, at the beginning of the last period: moves since then are not in it",
        of_summary(lambda summary: summary.max_to_mean),
    )
    declare(
        "pool_load_silent_vreplicas",
        "vreplicas of such a pool that no report of load is about, or none that counts",
        of_summary(lambda summary: float(summary.silent)),
    )
    declare(
        "pool_load_unavailable",
        "1 for a pool with `loadSource` whose last query has brought no load, as its condition "
        "`LoadUnavailable`; from its leader",
        lambda pool: float(known[1]) if (known := polling.condition(pool)) is not None else None,
    )
    metrics.counter(
        "load_queries",
        "Queries for the load of pools with `loadSource`, by what has become of them",
        Label("result", QUERY_RESULTS),
        lambda: polling.counted,
    )
    metrics.counter(
        "load_reports",
        "Reports of load, by what has become of them",
        Label("result", RESULTS),
        lambda: reports.counted,
    )
