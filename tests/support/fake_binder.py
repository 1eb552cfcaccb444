"""``FakeVReplicaBinder``: a binder that answers as it is told, for tests of whatever calls one.

The counterpart of the volume binder's FakeVolumeBinder, with the Protocol of the real binder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.kube.api import ApiError
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReasons
from extender.node.bind_ledger import BindLedger
from extender.node.candidates import Candidates
from extender.node.verbs import NodeLookup, NodeVerdicts
from extender.service.binding.binder import AssumedPod, BindRefused


@dataclass(slots=True, kw_only=True)
class FakeBinderConfig:
    """What to answer, as FakeVolumeBinderConfig: ``already_bound`` (AllBound), ``find_reasons``
    (FindReasons) by node, and the errors that ``find``, ``assume`` and ``bind`` raise (FindErr,
    AssumeErr, BindErr).
    """

    already_bound: bool = False
    find_reasons: Mapping[str, ConflictReasons] = field(default_factory=dict)
    find_error: Exception | None = None
    bind_ledger: BindLedger = field(default_factory=lambda: BindLedger(EMPTY_LEDGER, {}, "{}"))
    slots: int = 20
    assume_error: BindRefused | None = None
    bind_errors: list[ApiError] = field(default_factory=list)
    """Raised one a call, in order; then binds succeed."""


class FakeVReplicaBinder:
    """Answers by its ``config`` and keeps what it was asked, in ``calls``: (verb, pod UID,
    node).
    """

    def __init__(self, config: FakeBinderConfig | None = None) -> None:
        self.config = config if config is not None else FakeBinderConfig()
        self.calls: list[tuple[str, str, str]] = []
        self.assumed: dict[str, AssumedPod] = {}
        """By pod UID: what is assumed and neither bound nor reverted."""
        self.bound: dict[str, str] = {}
        """Pod UID -> node."""
        self._passed: set[str] = set()
        """UIDs of pods for which ``find`` has passed a node."""

    def find(
        self, pod: AdapterPod, candidates: Candidates, lookup: NodeLookup | None = None
    ) -> NodeVerdicts:
        """See VReplicaBinder."""
        del lookup
        nodes = candidates.names
        self.calls.append(("find", pod.uid, ""))
        if self.config.find_error is not None:
            raise self.config.find_error
        refused = self.config.find_reasons
        verdicts = NodeVerdicts(Candidates.of(node for node in nodes if node not in refused))
        for node in nodes:
            if reasons := refused.get(node):
                verdicts.refuse(node, reasons)
        self._passed.discard(pod.uid)
        if verdicts.passed:
            self._passed.add(pod.uid)
        return verdicts

    def bind_ledger(self, pod_uid: str) -> BindLedger | None:
        """See VReplicaBinder."""
        return self.config.bind_ledger if pod_uid in self._passed else None

    def assume(self, pod: AdapterPod, node: str) -> AssumedPod:
        """See VReplicaBinder."""
        self.calls.append(("assume", pod.uid, node))
        if self.config.assume_error is not None:
            raise self.config.assume_error
        config = self.config
        assumed = AssumedPod(pod, node, config.bind_ledger, config.slots, config.already_bound)
        self.assumed[pod.uid] = assumed
        return assumed

    async def bind(self, assumed: AssumedPod) -> None:
        """See VReplicaBinder."""
        self.calls.append(("bind", assumed.pod.uid, assumed.node))
        if self.config.bind_errors:
            raise self.config.bind_errors.pop(0)
        self.assumed.pop(assumed.pod.uid, None)
        self.bound[assumed.pod.uid] = assumed.node

    def revert(self, assumed: AssumedPod) -> None:
        """See VReplicaBinder."""
        self.calls.append(("revert", assumed.pod.uid, assumed.node))
        self.assumed.pop(assumed.pod.uid, None)
