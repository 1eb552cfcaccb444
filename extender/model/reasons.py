"""``ConflictReason``: the fixed set of reasons of replies, events, metrics and explanations.

kube-scheduler groups the reasons in FailedScheduling events by their text. So each is one short
constant string.
"""

from enum import StrEnum


class ConflictReason(StrEnum):
    """Why a pod does not fit a node, or a vreplica fits no pod. The value is the text that users
    see.
    """

    POOL_NOT_FOUND = "PoolNotFound"
    POOL_NOT_SERVED = "PoolNotServed"
    """The pool's namespace is not in pools.namespaces: the pool is another installation's."""
    STATEFULSET_NOT_FOUND = "StatefulSetNotFound"
    STATEFULSET_TAKEN = "StatefulSetTaken"
    """Another AdapterPool names the same StatefulSet and has precedence."""
    SLOTS_MISMATCH = "SlotsMismatch"
    NODE_SLOTS_EXCEEDED = "NodeSlotsExceeded"
    NODE_UNKNOWN = "NodeUnknown"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    """The node is cordoned, and the pod does not tolerate that. Bind checks it again."""
    ZONE_SKEW_EXCEEDED = "ZoneSkewExceeded"
    LEDGER_TOO_LARGE = "LedgerTooLarge"
    LEDGER_UNREADABLE = "LedgerUnreadable"
    LEDGER_CHANGED = "LedgerChanged"
    POD_CHANGED = "PodChanged"
    POD_ALREADY_BOUND = "PodAlreadyBound"
    CATCHING_UP = "CatchingUp"
    """This replica does not know yet what the ordinal's last pod held, so it must not bind the
    next.
    """
    OTHER_SCHEDULER = "OtherScheduler"
    """The pod's spec.schedulerName is another scheduler's, so it is not bound here."""
    INSUFFICIENT_SLOTS = "InsufficientSlots"
    UNSATISFIABLE = "Unsatisfiable"
    """One vreplica is heavier than slotsPerPod: no pod of the pool can ever hold it."""
    TENANT_NOT_ALLOWED = "TenantNotAllowed"
    """The pool's namespaceSelector does not select the vpod's namespace."""
    QUARANTINED = "Quarantined"
    """The vpod's shares have preceded crashes of pods, and nobody has released it yet."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """The vpod's tenant has as many of the pool's slots as its limit or its fair share allows."""
    PREEMPTED = "Preempted"
    """Vpods of a higher priority have the slots that the vpod asks for."""
    PLUGIN_FAILED = "PluginFailed"
    """A third-party plugin of the pool's profile raised, or gave no valid answer, for the vpod."""
    POD_UNSCHEDULABLE = "PodUnschedulable"
    """The adapter pod takes no new vreplicas: it does not exist, is not bound, is being deleted, is
    marked unschedulable, or is being emptied.
    """
    NODE_UNFIT = "NodeUnfit"
    """The pod's nodeSelector, affinity or tolerations rule the node out, by kube-scheduler's
    filters.
    """
    NODE_NOT_READY = "NodeNotReady"
    """The node of the adapter pod is unreachable or not Ready."""
    POLICY_REFUSED = "PolicyRefused"
    """A filter of the pool's profile does not let the adapter pod take more of the vpod."""
    WRITE_REFUSED = "WriteRefused"
    """The API server forbids the write (403): RBAC, an admission policy, or somebody else's
    webhook.
    """


ConflictReasons = tuple[ConflictReason, ...]
"""All reasons for which a pod does not fit a node, as the volume binder's type of that name. Empty
if it fits.
"""

UNRESOLVABLE = frozenset(
    {
        ConflictReason.POOL_NOT_FOUND,
        ConflictReason.POOL_NOT_SERVED,
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
"""Reasons that evicting pods cannot cure. They go into FailedAndUnresolvableNodes."""
