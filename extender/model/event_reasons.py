"""``EventReason``: the fixed set of reasons of our events, and what each is about. A test compares
``docs/events.md`` with it.

The reason determines the type and the action of an event. So tools can rely on these words. Texts
of a tenant or a server go into the note, and never become a reason.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

POD, POOL, VPOD = "Pod", "AdapterPool", "VPod"


class EventType(StrEnum):
    """``type`` of an event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(StrEnum):
    """``reason`` of an event. It is kube-scheduler's own word if there is one."""

    SCHEDULED = "Scheduled"
    FAILED_SCHEDULING = "FailedScheduling"
    UNAVAILABLE = "Unavailable"
    AVAILABLE = "Available"
    MOVED = "Moved"
    PREEMPTED = "Preempted"
    QUARANTINED = "Quarantined"
    RELEASED = "Released"
    WOULD_MOVE = "WouldMove"
    PREPARE_TIMED_OUT = "PrepareTimedOut"
    SERVE_TIMED_OUT = "ServeTimedOut"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    FAILED_BINDING = "FailedBinding"
    WRITE_REFUSED = "WriteRefused"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    SCALING_LIMITED = "ScalingLimited"
    REPLICAS_CHANGED = "ReplicasChanged"
    PODS_ABANDONED = "PodsAbandoned"
    PODS_CRASH = "PodsCrash"
    DESCHEDULED = "Descheduled"
    DESCHEDULING_REFUSED = "DeschedulingRefused"
    ROLLED_OUT = "RolledOut"
    ROLLED_OUT_UNSERVED = "RolledOutUnserved"
    ROLLOUT_REFUSED = "RolloutRefused"
    ROLLOUT_WAITS = "RolloutWaits"
    FOREIGN_WRITE = "ForeignWrite"
    LEDGER_DIFFERS = "LedgerDiffers"
    LEDGER_UNREADABLE = "LedgerUnreadable"
    SLOTS_MISMATCH = "SlotsMismatch"
    ANNOTATION_UNREADABLE = "AnnotationUnreadable"
    WEBHOOK_BYPASSED = "WebhookBypassed"
    ASSIGNMENT_TOO_LARGE = "AssignmentTooLarge"
    LEASE_EXPIRED = "LeaseExpired"


@dataclass(frozen=True, slots=True)
class EventKind:
    """What an event with a certain reason says. ``regarding``: the kinds of objects that it is
    about. For VPod, it may also be an object of a foreign kind that a pool declares.
    """

    type: EventType
    action: str
    regarding: tuple[str, ...]
    meaning: str
    remedy: str = ""
    """What a person does about it; "" if nothing."""


_TELL, _WARN = EventType.NORMAL, EventType.WARNING

EVENTS: Final = MappingProxyType(
    {
        EventReason.SCHEDULED: EventKind(
            _TELL,
            "Binding",
            (VPOD,),
            "vreplicas have got their place; the note says how many are where",
        ),
        EventReason.FAILED_SCHEDULING: EventKind(
            _WARN,
            "Scheduling",
            (VPOD,),
            "not all vreplicas have a place; the note says why, as the condition `Scheduled` does",
            "nothing while the pool grows; else see `kubectl describe` of the pool: "
            "`ScalingLimited`, `Ready`",
        ),
        EventReason.UNAVAILABLE: EventKind(
            _WARN,
            "Serving",
            (VPOD, POOL),
            "nobody serves some of the vreplicas that are placed: a node is lost, or a pod is "
            "terminating or not Ready for "
            "more than 10 s; the note says how many and where; each further loss is told, and a "
            "reason that gets worse",
            "look at the pods and nodes that the note names; `rescheduleAfterSeconds` of the pool "
            "says when the vreplicas "
            "are placed elsewhere",
        ),
        EventReason.AVAILABLE: EventKind(
            _TELL,
            "Serving",
            (VPOD, POOL),
            "all vreplicas are on pods that are Ready, again or for the first time",
        ),
        EventReason.QUARANTINED: EventKind(
            _WARN,
            "Scheduling",
            (VPOD,),
            "pods crashed soon after they got a share of the vpod, so it gets no further place; "
            "the note names the pods",
            "look at the log of these pods, and mend what the vpod asks of its adapter; then "
            "release it (docs/quarantine.md)",
        ),
        EventReason.RELEASED: EventKind(
            _TELL,
            "Scheduling",
            (VPOD,),
            "a person has released the vpod from its quarantine",
        ),
        EventReason.PODS_CRASH: EventKind(
            _WARN,
            "Scheduling",
            (POOL,),
            "more vpods precede the crashes of pods than `quarantine.maxVPods`, so none is put "
            "into quarantine",
            "look at the log of the pool's pods: an image that crashes has this effect, too",
        ),
        EventReason.MOVED: EventKind(
            _TELL,
            "Moving",
            (VPOD,),
            "vreplicas have moved; the note says how many, from where to where, and why",
        ),
        EventReason.PREEMPTED: EventKind(
            _TELL,
            "Scheduling",
            (VPOD,),
            "slots go from vpods to others of a higher priority; both get this event, and the note "
            "says how much was taken",
        ),
        EventReason.WOULD_MOVE: EventKind(
            _TELL, "Moving", (VPOD,), "what would be moved, with `rebalance.dryRun: true`"
        ),
        EventReason.PREPARE_TIMED_OUT: EventKind(
            _WARN,
            "Moving",
            (VPOD,),
            "vreplicas were to move, and the adapter of their new pod did not get ready within "
            "`handoff.prepareTimeoutSeconds`; they stay where they are, and are tried again after "
            "`rebalance.cooldownSeconds`, or after at most 10 s off a pod that is evicted",
            "see the log of the adapter that the note names",
        ),
        EventReason.SERVE_TIMED_OUT: EventKind(
            _WARN,
            "Moving",
            (VPOD,),
            "vreplicas have moved, and the adapter of their new pod was ready, but did not begin "
            "to serve within `handoff.prepareTimeoutSeconds`; their former pods let go all the "
            "same, and `Available` says `AdapterNotServing` while nobody serves them",
            "see the log of the adapter that the note names",
        ),
        EventReason.DRAIN_TIMED_OUT: EventKind(
            _WARN,
            "Moving",
            (VPOD,),
            "an adapter did not let go of a share within `handoff.drainTimeoutSeconds`; the share "
            "was taken away",
            "see the log of the adapter that the note names",
        ),
        EventReason.FAILED_BINDING: EventKind(
            _WARN,
            "Binding",
            (POD,),
            "an adapter pod was not bound to the node that kube-scheduler has chosen; it tries "
            "again",
            "look at the note when it goes on: `LedgerTooLarge`, `SlotsMismatch` and "
            "`OtherScheduler` do not pass by themselves",
        ),
        EventReason.WRITE_REFUSED: EventKind(
            _WARN,
            "Writing",
            (POD, VPOD),
            "the API server forbids a write (403); what was decided waits",
            "compare the roles of the service's ServiceAccount with `manifests/base`, and look for "
            "admission policies and "
            "webhooks of others",
        ),
        EventReason.SCALED_UP: EventKind(
            _TELL, "Scaling", (POOL,), "the StatefulSet was asked for more pods"
        ),
        EventReason.SCALED_DOWN: EventKind(
            _TELL, "Scaling", (POOL,), "pods that held nothing were given back"
        ),
        EventReason.SCALING_LIMITED: EventKind(
            _WARN,
            "Scaling",
            (POOL,),
            "more pods are needed than `maxPods` allows",
            "raise `maxPods` or `slotsPerPod`, or have tenants ask for less",
        ),
        EventReason.REPLICAS_CHANGED: EventKind(
            _TELL,
            "Scaling",
            (POOL,),
            "somebody else has changed the StatefulSet's replicas; they are left until our own "
            "need changes",
            "let one of both scale it: KEDA, an HPA, a person, or the pool",
        ),
        EventReason.PODS_ABANDONED: EventKind(
            _WARN,
            "Rescheduling",
            (POOL,),
            "pods were not Ready for `rescheduleAfterSeconds`; what they hold is placed elsewhere",
            "look at the pods and their nodes",
        ),
        EventReason.DESCHEDULED: EventKind(
            _TELL,
            "Descheduling",
            (POD,),
            "the pod is evicted from a node that it should have left, with `descheduling`; the "
            "note says why; its ordinal comes back elsewhere with what it held",
        ),
        EventReason.DESCHEDULING_REFUSED: EventKind(
            _WARN,
            "Descheduling",
            (POOL,),
            "the API server refuses to evict a pod that should leave its node; it is tried again",
            "look at the PodDisruptionBudget that the note names; for a 403, set the chart's "
            "`rbac.descheduling`",
        ),
        EventReason.ROLLED_OUT: EventKind(
            _TELL,
            "RollingOut",
            (POD,),
            "the pod is of an old revision, its shares are handed over, and it is evicted, with "
            "`rollout.strategy: HandedOver`",
        ),
        EventReason.ROLLED_OUT_UNSERVED: EventKind(
            _WARN,
            "RollingOut",
            (POD,),
            "the pod is of an old revision, and is evicted although it still has shares: they were "
            "not handed over in time; they are down until its ordinal is back",
            "see the events `PrepareTimedOut` and `DrainTimedOut` of the vpods, and whether the "
            "pool has room: `rollout.surge`, `maxPods`",
        ),
        EventReason.ROLLOUT_REFUSED: EventKind(
            _WARN,
            "RollingOut",
            (POOL,),
            "the API server refuses to evict a pod of an old revision; it is tried again",
            "look at the PodDisruptionBudget that the note names; for a 403, set the chart's "
            "`rbac.rollouts`",
        ),
        EventReason.ROLLOUT_WAITS: EventKind(
            _WARN,
            "RollingOut",
            (POOL,),
            "a rollout has not gone on for five minutes; the note says what it waits for",
            "look at the pod that the note names; for `OnDelete`, change the StatefulSet",
        ),
        EventReason.FOREIGN_WRITE: EventKind(
            _WARN,
            "Repairing",
            (POD,),
            "somebody else has written a ledger annotation; it is put right",
            "find the writer in the audit log; install the ValidatingAdmissionPolicy "
            "`vreplica-ledger`; give another installation that serves the pool its own "
            "`pools.namespaces`",
        ),
        EventReason.LEDGER_DIFFERS: EventKind(
            _WARN,
            "Repairing",
            (POD,),
            "as a new leader began, a ledger was not as the vpods say; it is put right",
            "as for ForeignWrite, where it happens again",
        ),
        EventReason.LEDGER_UNREADABLE: EventKind(
            _WARN,
            "Repairing",
            (POD,),
            "a ledger could not be read and was written again",
            "as for ForeignWrite",
        ),
        EventReason.SLOTS_MISMATCH: EventKind(
            _WARN,
            "Repairing",
            (POD,),
            "the annotation `vreplica.dev/slots` was not what the pod requests, and was written "
            "again",
            "as for ForeignWrite",
        ),
        EventReason.ANNOTATION_UNREADABLE: EventKind(
            _WARN,
            "Draining",
            (POD,),
            "an annotation that should drain the pod is no bool, so the pod is not drained",
            "write `true` or `false`",
        ),
        EventReason.WEBHOOK_BYPASSED: EventKind(
            _WARN,
            "Repairing",
            (POD,),
            "an adapter pod was bound by another scheduler without passing through the webhook; it "
            "is put right",
            "see why the webhook did not answer: its pods, its certificate, its registration",
        ),
        EventReason.ASSIGNMENT_TOO_LARGE: EventKind(
            _WARN,
            "Assigning",
            (POD,),
            "the pod carries so many vpods that they do not fit in its assignment annotation; its "
            "adapter is not told of some of them, so nobody serves their vreplicas there",
            "lower `slotsPerPod` of the pool, so that more pods share the vpods",
        ),
        EventReason.LEASE_EXPIRED: EventKind(
            _WARN,
            "Assigning",
            (POD,),
            "the pod is Ready, and its adapter does not renew its lease; it counts as not Ready, "
            "so its vreplicas are placed elsewhere after `rescheduleAfterSeconds`",
            "look at the adapter's log; see whether it reaches the service; restart the pod",
        ),
    }
)

HAPPENED: Final = frozenset(
    {
        EventReason.SCHEDULED,
        EventReason.UNAVAILABLE,
        EventReason.AVAILABLE,
        EventReason.MOVED,
        EventReason.PREEMPTED,
        EventReason.QUARANTINED,
        EventReason.RELEASED,
        EventReason.SCALED_UP,
        EventReason.SCALED_DOWN,
        EventReason.PODS_ABANDONED,
        EventReason.DESCHEDULED,
        EventReason.ROLLED_OUT,
        EventReason.ROLLED_OUT_UNSERVED,
        EventReason.ANNOTATION_UNREADABLE,
    }
)
"""Reasons that report a change: another note is another event. The other reasons report a lasting
state, and their note may change with each try.
"""
