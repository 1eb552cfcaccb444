"""``ConflictReason``: the closed set of reasons shared by replies, events, metrics and
explanations.

kube-scheduler aggregates reasons by their text in FailedScheduling events, so each is one short
constant string.
"""

from enum import StrEnum


class ConflictReason(StrEnum):
    """Why a pod does not fit a node, or a vreplica no pod. Value = the text that users see."""

    POOL_NOT_FOUND = "PoolNotFound"
    STATEFULSET_NOT_FOUND = "StatefulSetNotFound"
    STATEFULSET_TAKEN = "StatefulSetTaken"
    """Another AdapterPool names the StatefulSet, too, and came first."""
    SLOTS_MISMATCH = "SlotsMismatch"
    NODE_SLOTS_EXCEEDED = "NodeSlotsExceeded"
    NODE_UNKNOWN = "NodeUnknown"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    """Cordoned, and the pod does not tolerate it: kube-scheduler filters that, and bind looks
    again.
    """
    ZONE_SKEW_EXCEEDED = "ZoneSkewExceeded"
    LEDGER_TOO_LARGE = "LedgerTooLarge"
    LEDGER_UNREADABLE = "LedgerUnreadable"
    LEDGER_CHANGED = "LedgerChanged"
    POD_CHANGED = "PodChanged"
    POD_ALREADY_BOUND = "PodAlreadyBound"
    CATCHING_UP = "CatchingUp"
    """This replica has not seen yet what the ordinal's last pod held, and must not bind the next
    one without.
    """
    OTHER_SCHEDULER = "OtherScheduler"
    """The pod is another scheduler's (spec.schedulerName): not for whoever asks here to bind."""
    INSUFFICIENT_SLOTS = "InsufficientSlots"
    UNSATISFIABLE = "Unsatisfiable"
    """No pod of the pool could ever hold it: one vreplica is heavier than slotsPerPod."""
    TENANT_NOT_ALLOWED = "TenantNotAllowed"
    """The pool's namespaceSelector does not select the vpod's namespace."""
    PLUGIN_FAILED = "PluginFailed"
    """A third party's plugin of the pool's profile raised, or gave no answer, when asked about the
    vpod.
    """
    POD_UNSCHEDULABLE = "PodUnschedulable"
    """The adapter pod takes no new vreplicas: it is not there, not bound, going, marked, or being
    emptied.
    """
    NODE_UNFIT = "NodeUnfit"
    """The pod's nodeSelector, affinity or tolerations keep it from the node: kube-scheduler's own
    filters say that.
    """
    NODE_NOT_READY = "NodeNotReady"
    """The adapter pod's node is not Ready or unreachable."""
    POLICY_REFUSED = "PolicyRefused"
    """A filter of the pool's profile lets the adapter pod have no more of the vpod."""
    WRITE_REFUSED = "WriteRefused"
    """The API server forbids what was decided (403): a role, an admission policy, another's
    webhook.
    """


UNRESOLVABLE = frozenset(
    {
        ConflictReason.POOL_NOT_FOUND,
        ConflictReason.STATEFULSET_NOT_FOUND,
        ConflictReason.STATEFULSET_TAKEN,
        ConflictReason.SLOTS_MISMATCH,
        ConflictReason.NODE_UNKNOWN,
        ConflictReason.ZONE_SKEW_EXCEEDED,
        ConflictReason.LEDGER_TOO_LARGE,
        ConflictReason.LEDGER_UNREADABLE,
        ConflictReason.POD_ALREADY_BOUND,
    }
)
"""Reasons that evicting pods cannot cure: they go into FailedAndUnresolvableNodes."""
