"""``WriteRefusals``: a write that the API server forbids (403) is told at once, by name, wherever
it shows.

A role that was taken away, an admission policy or a webhook of somebody else: trying again does not
help until a person has changed something, and a vpod that just says ``InsufficientSlots`` sends
that person the wrong way. So such a write has a reason of its own, ``WriteRefused``: in the vpod's
condition, in a Warning event on the object that could not be written and on the vpods concerned, in
a line of the log at level WARNING, and in the metric of refusals. It is tried again all the same,
with the queue's backoff, and what was refused is written as soon as it may be.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from extender.engine.placing.plan import Decision
from extender.kube.api import Forbidden
from extender.kube.events import ObjectReference
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPod, VPod
from extender.model.reasons import ConflictReason
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

VPODS_TOLD_MAX: Final = 32
"""Of one refused ledger: the vpods that get an event of their own. The pod's event and the log tell
of all.
"""

Tell = Callable[[ObjectReference, str], None]
"""(the object, a sentence): ``VPodEvents.write_refused``."""


class WriteRefusals:
    """Of one committer. ``tell`` records an event; without one there is the log, and the metric."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.tell: Tell = lambda _regarding, _note: None

    def ledger(self, pod: AdapterPod, vpods: Iterable[VPod | None], error: Forbidden) -> str:
        """The ledger of a pod may not be written, for the sake of these vpods; why, in a
        sentence.
        """
        why = f"the ledger of pod {pod.key} may not be written: {error.message}"
        self._note(why)
        self.tell(ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid), why)
        told = [vpod for vpod in vpods if vpod is not None and not vpod.source]
        for vpod in told[:VPODS_TOLD_MAX]:
            self.tell(_reference(vpod), why)
        return why

    def status(self, vpod: VPod, error: Forbidden) -> str:
        """The status of a vpod may not be written; why, in a sentence."""
        why = (
            f"the status of {vpod.source or 'VPod'} {vpod.key} may not be written: {error.message}"
        )
        self._note(why)
        if not vpod.source:
            self.tell(_reference(vpod), why)
        return why

    def _note(self, why: str) -> None:
        self._metrics.refused(str(ConflictReason.WRITE_REFUSED))
        log.warning(
            "%s: %s",
            ConflictReason.WRITE_REFUSED,
            why,
            extra={"reason": ConflictReason.WRITE_REFUSED},
        )


def as_refused(decision: Decision, why: str | None) -> Decision:
    """A decision as its vpod is told of it: ``why`` it could not be written, None if nothing was
    refused.
    """
    if why is None:
        return decision
    explanation = decision.explanation._replace(reason=ConflictReason.WRITE_REFUSED, detail=why)
    return decision._replace(explanation=explanation)


def _reference(vpod: VPod) -> ObjectReference:
    return ObjectReference(API_VERSION, "VPod", vpod.namespace, vpod.name, vpod.uid)
