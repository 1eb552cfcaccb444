"""``WriteRefusals``: reports a write that the API server forbids (403) at once, under a reason of
its own.

A missing role, an admission policy or somebody else's webhook may refuse a write. Retrying does not
help until a person changes something, and a vpod that reports ``InsufficientSlots`` would mislead
that person. So the reason is ``WriteRefused``: in the vpod's condition, in a Warning event on the
object that could not be written and on the vpods concerned, in a log line at level WARNING, and in
the metric of refusals. The write is still retried with the queue's backoff, so it succeeds once it
is allowed.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from extender.engine.placing.plan import Decision
from extender.kube.api import Forbidden
from extender.model.objects import AdapterPod, VPod
from extender.model.reasons import ConflictReason
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

VPODS_REPORTED_MAX: Final = 32
"""vpods of one refused ledger that get an event. The event on the pod, and the log, cover all."""

Report = Callable[[AdapterPod | VPod, str], None]
"""(the object, a sentence): ``VPodEvents.write_refused``."""


class WriteRefusals:
    """For one committer. ``report`` records an event."""

    def __init__(self, metrics: Metrics, report: Report) -> None:
        self._metrics = metrics
        self._report = report

    def ledger(self, pod: AdapterPod, vpods: Iterable[VPod | None], error: Forbidden) -> str:
        """Report that the ledger of a pod may not be written for these vpods. Return why, as a
        sentence.
        """
        why = f"the ledger of pod {pod.key} may not be written: {error.message}"
        self._note(why)
        self._report(pod, why)
        for vpod in islice(filter(None, vpods), VPODS_REPORTED_MAX):
            self._report(vpod, why)
        return why

    def status(self, vpod: VPod, error: Forbidden) -> str:
        """Report that the status of a vpod may not be written. Return why, as a sentence."""
        why = (
            f"the status of {vpod.source or 'VPod'} {vpod.key} may not be written: {error.message}"
        )
        self._note(why)
        self._report(vpod, why)
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
    """The decision as it is reported. ``why``: which write was refused; None: none was."""
    if why is None:
        return decision
    explanation = decision.explanation._replace(reason=ConflictReason.WRITE_REFUSED, detail=why)
    return decision._replace(explanation=explanation)
