"""The service's metrics, with kube-scheduler's names (under our prefix), labels and buckets.

Labels have fixed sets of values: results, verbs, reasons, queue parts. No text of a tenant's
object is a label value. Pools, sources and tenants, which operators name, are label values up to a
limit.
``docs/metrics.md`` is made from the families that are declared here, and from the gauges that other
parts add.
"""

from typing import Final

from prometheus_client import Counter, Histogram

from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from extender.telemetry.exposition import (
    OTHER,
    Exposition,
    Label,
    Stability,
)

PREFIX: Final = "vreplica_scheduler"
_ATTEMPT_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
"""kube-scheduler: ExponentialBuckets(0.001, 2, 15), seconds."""
_EXTENSION_POINT_BUCKETS: Final = tuple(0.0001 * 2**i for i in range(12))
"""kube-scheduler: ExponentialBuckets(0.0001, 2, 12), seconds."""
_SLI_BUCKETS: Final = tuple(0.01 * 2**i for i in range(20))
"""kube-scheduler: ExponentialBuckets(0.01, 2, 20), seconds."""
_ATTEMPTS_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""kube-scheduler: ExponentialBuckets(1, 2, 5), attempts."""
_HANDOVER_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""client-go's rest_client_request_duration_seconds."""

ATTEMPTS_MANY: Final = 15
"""As in kube-scheduler: from this many attempts on, the label says ``15+``."""

VERB_VALUES: Final = ("filter", "prioritize", "bind", "preempt", "schedule", "load", "acknowledge")
STATUS_VALUES: Final = ("Success", "Unschedulable", "Error")
RESULT_VALUES: Final = ("scheduled", "unschedulable", "error")
QUEUE_VALUES: Final = ("active", "backoff", "unschedulable")
LANE_VALUES: Final = ("reads", "writes", "events", "reviews", "foreign", "leases")
METHOD_VALUES: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
API_ERROR: Final = "ApiError"
REASON_VALUES: Final = (*map(str, ConflictReason), API_ERROR)
REPAIR_VALUES: Final = (
    "ForeignWrite",
    "LedgerDiffers",
    "LedgerUnreadable",
    "PodReactivated",
    "ReservationExpired",
    "SlotsMismatch",
    "WebhookBypassed",
)
_MOVE_VALUES: Final = tuple(map(str, MoveReason))
ATTEMPTS_VALUES: Final = (*map(str, range(1, ATTEMPTS_MANY)), f"{ATTEMPTS_MANY}+")


class Metrics(Exposition):
    """The metrics of one service."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        result = Label("result", RESULT_VALUES)
        self._attempts = self.add_counter(
            "schedule_attempts",
            "Attempts to place vpods, by result",
            [result],
            stability=Stability.STABLE,
            like="scheduler_schedule_attempts_total",
        )
        self._attempt_duration = self.add_histogram(
            "scheduling_attempt_duration_seconds",
            "Decision and writes of a vpod's batch",
            _ATTEMPT_BUCKETS,
            [result],
            stability=Stability.STABLE,
            like="scheduler_scheduling_attempt_duration_seconds",
        )
        self._of_result: dict[str, tuple[Counter, Histogram]] = {}
        self.scheduling_algorithm_duration = self.add_histogram(
            "scheduling_algorithm_duration_seconds",
            "Decisions of a batch, without writes",
            _ATTEMPT_BUCKETS,
            like="scheduler_scheduling_algorithm_duration_seconds",
        )
        self._sli = self.add_histogram(
            "vpod_scheduling_sli_duration_seconds",
            "Time from when a vpod wanted vreplicas that it had not until all are placed and "
            "published, by attempts",
            _SLI_BUCKETS,
            [Label("attempts", ATTEMPTS_VALUES)],
            stability=Stability.BETA,
            like="scheduler_pod_scheduling_sli_duration_seconds",
        )
        self._vpod_attempts = self.add_histogram(
            "vpod_scheduling_attempts",
            "Attempts that it took to place a vpod",
            _ATTEMPTS_BUCKETS,
            stability=Stability.STABLE,
            like="scheduler_pod_scheduling_attempts",
        )
        self._verb_duration = self.add_histogram(
            "framework_extension_point_duration_seconds",
            "Extender verbs",
            _EXTENSION_POINT_BUCKETS,
            [Label("extension_point", VERB_VALUES), Label("status", STATUS_VALUES)],
            stability=Stability.STABLE,
            like="scheduler_framework_extension_point_duration_seconds",
        )
        self._refusals = self.add_counter(
            "refusals",
            "Nodes, binds and writes refused, and vreplicas for want of bytes in ledgers, by "
            "reason",
            [Label("reason", REASON_VALUES)],
        )
        self._add_work()
        self._add_requests()
        self.leader = self.add_gauge(
            "leader_election_master_status",
            "1 while this replica leads",
            [Label("name", description="the Leases of the pools' buckets, 64 at the most")],
            like="leader_election_master_status",
        )

    def _add_work(self) -> None:
        self.repairs = self.add_counter(
            "repairs", "What has been put right, by kind", [Label("kind", REPAIR_VALUES)]
        )
        self.ledger_conflicts = self.add_counter(
            "ledger_conflicts", "Ledger writes that lost their compare-and-swap"
        )
        moved = [Label("reason", _MOVE_VALUES)]
        self.moves = self.add_counter(
            "moves", "vreplicas that were moved, by reason", moved, stability=Stability.BETA
        )
        self.moves_planned = self.add_counter(
            "moves_planned", "vreplicas that the evictor would move, made or not, by reason", moved
        )
        self.preempted_vreplicas = self.add_counter(
            "preempted_vreplicas", "vreplicas that were taken from vpods for a higher priority"
        )
        step = [Label("step", ("prepare", "serve", "drain"))]
        self.handover_duration = self.add_histogram(
            "handover_duration_seconds",
            "How long a share that was handed over waited for adapters, by step",
            _HANDOVER_BUCKETS,
            step,
        )
        self.handover_timeouts = self.add_counter(
            "handover_timeouts",
            "Hand-overs in which an adapter did not get ready, serve, or let go in time, by step",
            step,
        )
        self.pods_evicted = self.add_counter(
            "pods_evicted",
            "Evictions of adapter pods from nodes that they should have left, and by rollouts",
            [Label("result", ("success", "refused", "error"))],
        )
        self.scalings = self.add_counter(
            "scalings", "Changes of a pool's replicas", [Label("direction", ("up", "down"))]
        )

    def _add_requests(self) -> None:
        self._request_duration = self.add_histogram(
            "rest_client_request_duration_seconds",
            "Requests to the API server, from sending to the beginning of the answer, by method "
            "and lane",
            _REQUEST_BUCKETS,
            [Label("verb", METHOD_VALUES), Label("lane", LANE_VALUES)],
            like="rest_client_request_duration_seconds",
        )

    def schedule_attempt(self, result: str, duration_s: float) -> None:
        """Count a vpod that was decided and written: ``result`` is scheduled, unschedulable or
        error.
        """
        found = self._of_result.get(result)
        if found is None:
            # labels() takes a lock and makes tuples, so its results are kept.
            found = self._attempts.labels(result), self._attempt_duration.labels(result)
            self._of_result[result] = found
        found[0].inc()
        found[1].observe(duration_s)

    def placed(self, waited_s: float, attempts: int) -> None:
        """Record that all vreplicas of a waiting vpod have a place, after so many attempts."""
        told = str(attempts) if attempts < ATTEMPTS_MANY else ATTEMPTS_VALUES[-1]
        self._sli.labels(told).observe(waited_s)
        self._vpod_attempts.observe(attempts)

    def verb(self, extension_point: str, status: str, duration_s: float) -> None:
        """Record an answered extender verb: ``status`` is Success, Unschedulable or Error."""
        self._verb_duration.labels(extension_point, status).observe(duration_s)

    def requested(self, method: str, lane: str, duration_s: float) -> None:
        """Record that the API server has begun to answer a request."""
        self._request_duration.labels(method, lane).observe(duration_s)

    def refused(self, reason: str, count: int = 1) -> None:
        """Count refused nodes, binds, writes or vreplicas."""
        self._refusals.labels(reason if reason in REASON_VALUES else OTHER).inc(count)
