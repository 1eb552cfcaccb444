"""Gauges and counters of the service that are computed at a scrape: queues, caches, reflectors,
Leases, events.

Computing them touches only memory. Queues belong to the leader, so a replica reports the pools that
it leads, and a sum over all replicas is right. ``pool_gauges`` has the gauges of pools,
``tenant_gauges`` those of their tenants.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.kube.events import EventRecorder
from extender.kube.reflector import Reflector
from extender.model.reasons import ConflictReason
from extender.service.binding.binder import SchedulerVReplicaBinder
from extender.service.http.pool_gauges import UnservedTime, add_load_gauges, add_pool_gauges
from extender.service.http.tenant_gauges import add_tenant_gauges
from extender.service.placing.decision_history import DecisionHistory
from extender.service.placing.queue import QueueEvent, VPodQueues
from extender.service.pools.leadership import Leadership
from extender.service.pools.load_polling import LoadPolling
from extender.service.pools.load_reports import LoadReports
from extender.service.pools.unserved_shares import UnservedShares
from extender.service.watching.caches import Caches
from extender.service.watching.informers import Informers
from extender.telemetry.exposition import Family, Kind, Label, Stability
from extender.telemetry.metrics import QUEUE_VALUES, Metrics

CACHE_VALUES: Final = ("nodes", "pods", "assumed_pods", "vpods", "pools", "placement_decisions")
_RESOURCE: Final = Label(
    "resource", description="plurals of the six kinds that every replica watches"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParts:
    """The parts that are measured."""

    caches: Caches
    queues: VPodQueues
    history: DecisionHistory
    informers: Informers
    recorder: EventRecorder
    leadership: Leadership
    binder: SchedulerVReplicaBinder
    load: LoadReports
    load_polling: LoadPolling
    unserved_shares: UnservedShares


def add_gauges(metrics: Metrics, parts: MeasuredParts, clock: Callable[[], float]) -> UnservedTime:
    """Declare all gauges. The caller runs what is returned."""
    _add_queues(metrics, parts)
    _add_caches(metrics, parts)
    unserved_time = add_pool_gauges(
        metrics, parts.caches.state, clock, parts.unserved_shares.vreplicas
    )
    add_load_gauges(metrics, parts.caches.state, parts.load, parts.load_polling)
    add_tenant_gauges(metrics, parts.caches.state, parts.leadership.leads, clock)
    _add_reflectors(metrics, parts.informers)
    _add_events(metrics, parts.recorder)
    _add_leases(metrics, parts.leadership)
    metrics.gauge(
        "asyncio_tasks",
        "Tasks of the event loop",
        None,
        lambda: float(len(asyncio.all_tasks())),
    )
    sources = parts.informers.sources
    source = Label(
        "source",
        description="<kind>.<group> of the foreign kinds that pools name, 16 a pool at the most",
    )
    metrics.gauge("source_objects", "Objects of foreign kinds, by source", source, sources.objects)
    metrics.gauge(
        "source_unavailable",
        "1 while a foreign kind cannot be listed",
        source,
        sources.unavailable,
    )
    return unserved_time


# -- queues ----------------------------------------------------------------------------------------


def _add_queues(metrics: Metrics, parts: MeasuredParts) -> None:
    queues, leads = parts.queues, parts.leadership.leads
    metrics.gauge(
        "pending_vpods",
        "vpods waiting to be placed, by queue, of the pools that this replica leads",
        Label("queue", QUEUE_VALUES),
        lambda: {part: float(size) for part, size in queues.sizes(leads).items()},
        stability=Stability.STABLE,
        like="scheduler_pending_pods",
    )
    metrics.gauge(
        "pending_vpods_oldest_seconds",
        "How long the vpod waits that has waited the longest, of the pools that this replica "
        "leads; 0 for none",
        None,
        lambda: _oldest_s(queues, leads),
        stability=Stability.BETA,
    )
    metrics.gauge(
        "unschedulable_vpods",
        "vpods that wait for room or for a change, by reason, of the pools that this replica leads",
        Label("reason", tuple(map(str, ConflictReason))),
        lambda: _unschedulable(queues, leads, parts.history, parts.caches.state),
        stability=Stability.BETA,
        like="scheduler_unschedulable_pods",
    )
    metrics.read(
        Family(
            name="queue_incoming_vpods",
            kind=Kind.COUNTER,
            documentation="vpods that came into a part of the queue, by event",
            labels=(Label("queue", QUEUE_VALUES), Label("event", tuple(map(str, QueueEvent)))),
            stability=Stability.STABLE,
            like="scheduler_queue_incoming_pods_total",
        ),
        lambda: {
            (part, str(event)): float(count) for (event, part), count in queues.incoming.items()
        },
    )


def _oldest_s(queues: VPodQueues, leads: Callable[[str], bool]) -> float:
    led = [queues.of(pool).oldest for pool in queues if leads(pool)]
    since = min((oldest for oldest in led if oldest is not None), default=None)
    return 0.0 if since is None else max(0.0, asyncio.get_running_loop().time() - since)


def _unschedulable(
    queues: VPodQueues,
    leads: Callable[[str], bool],
    history: DecisionHistory,
    state: ClusterState,
) -> dict[str, float]:
    found: Counter[str] = Counter()
    for pool, known in state.pools.items():
        # Those that wait to be admitted are not parked: nothing but what others have helps.
        for key, left_out in known.waiting_for_quota().items() if leads(pool) else ():
            if key not in known.vpods_with_pending:
                found[str(left_out.reason)] += 1
    for pool in queues:
        if leads(pool):
            for key in queues.of(pool).parked:
                explanation = history.explanation(key)
                # Parked without a reason: the vpod is placed, and waits for its pods' binds to be
                # confirmed.
                if explanation is not None and explanation.reason is not None:
                    found[str(explanation.reason)] += 1
    return {reason: float(count) for reason, count in found.items()}


# -- caches ----------------------------------------------------------------------------------------


def _add_caches(metrics: Metrics, parts: MeasuredParts) -> None:
    caches = parts.caches
    metrics.gauge(
        "cache_size",
        "Objects in the caches, by kind",
        Label("type", CACHE_VALUES),
        lambda: {
            "nodes": float(len(caches.nodes)),
            "pods": float(len(caches.pods)),
            "assumed_pods": float(sum(pod.assumed for pod in caches.pods.list())),
            "vpods": float(len(caches.vpods)),
            "pools": float(len(caches.pools)),
            "placement_decisions": float(parts.binder.results_kept),
        },
        like="scheduler_cache_size",
    )
    metrics.gauge(
        "overcommitted_pods",
        "Bound adapter pods whose ledger takes more than they have",
        None,
        lambda: float(sum(len(pool.overcommitted()) for pool in caches.state.pools.values())),
        stability=Stability.STABLE,
    )


# -- reflectors, events, Leases --------------------------------------------------------------------


def _add_reflectors(metrics: Metrics, informers: Informers) -> None:
    def declare(
        name: str, documentation: str, kind: Kind, amount: Callable[[Reflector], float]
    ) -> None:
        metrics.read(
            Family(name=name, kind=kind, documentation=documentation, labels=(_RESOURCE,)),
            lambda: {
                (reflector.resource.plural,): amount(reflector)
                for reflector in informers.reflectors
            },
        )

    declare("reflector_lists", "Lists that have filled a cache", Kind.COUNTER, lambda r: r.lists)
    declare("reflector_watches", "Watches begun", Kind.COUNTER, lambda r: r.watches)
    declare("reflector_events", "Events received by watches", Kind.COUNTER, lambda r: r.events)
    declare(
        "reflector_errors",
        "Lists and watches that failed",
        Kind.COUNTER,
        lambda r: sum(r.errors.values()),
    )
    declare(
        "reflector_invalid_objects",
        "Objects that could not be read, once a version",
        Kind.COUNTER,
        lambda r: r.invalid_objects,
    )
    declare(
        "reflector_silence_seconds",
        "Since the last list, event or bookmark; an API server sends a bookmark a minute",
        Kind.GAUGE,
        lambda r: r.silence_s,
    )
    declare(
        "reflector_synced",
        "1 once the first list is in the cache",
        Kind.GAUGE,
        lambda r: float(r.is_synced),
    )


def _add_events(metrics: Metrics, recorder: EventRecorder) -> None:
    metrics.counter(
        "events_written", "Creates and patches of events", None, lambda: float(recorder.written)
    )
    metrics.counter(
        "events_dropped",
        "Events lost because the queue was full",
        None,
        lambda: float(recorder.dropped),
    )
    metrics.counter(
        "events_failed",
        "Events that the API server did not take",
        None,
        lambda: float(sum(recorder.failed.values())),
    )


def _add_leases(metrics: Metrics, leadership: Leadership) -> None:
    label = Label("name", description="the Leases of the pools' buckets, 64 at the most")

    def declare(name: str, documentation: str, amount: Callable[[int], float]) -> None:
        metrics.read(
            Family(name=name, kind=Kind.COUNTER, documentation=documentation, labels=(label,)),
            lambda: {
                (elector.lease_name,): amount(index)
                for index, elector in enumerate(leadership.electors)
            },
        )

    declare(
        "leader_election_transitions",
        "Times that this replica became leader",
        lambda index: leadership.electors[index].transitions,
    )
    declare(
        "leader_election_errors",
        "Reads and writes of a Lease that failed",
        lambda index: leadership.electors[index].errors,
    )
