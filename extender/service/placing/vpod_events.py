"""``VPodEvents``: reports decisions to the users of a vpod, by events on the VPod and the metric of
moves.

Every move is reported with its reason (I4): in an event, in the metric, and in the Moved condition
(``vpod_status``).
"""

from extender.engine.placing.explain import Step
from extender.engine.placing.plan import Decision
from extender.engine.state.availability import Served, condition_of, told_change
from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, ObjectReference
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import Condition, VPod
from extender.telemetry.metrics import Metrics


class VPodEvents:
    """Reports each decision that has been written."""

    def __init__(self, recorder: EventRecorder, metrics: Metrics) -> None:
        self._recorder = recorder
        self._metrics = metrics

    def decided(self, pool: PoolState, decision: Decision, *, newly: bool) -> None:
        """Report that a vpod was placed as far as possible. ``newly``: it was not Scheduled
        before.
        """
        self.moved(pool, decision)
        vpod = pool.vpods.get(decision.vpod)
        if vpod is None:
            return
        note = decision.explanation.outcome()
        if not decision.explanation.is_satisfied:
            self._event(
                vpod,
                EventReason.FAILED_SCHEDULING,
                note,
                cause=str(decision.explanation.reason or ""),
            )
        elif decision.target and (newly or has_grown(decision)):
            where = ", ".join(f"{count} on {name}" for name, count in decision.target.items())
            self._event(vpod, EventReason.SCHEDULED, f"{note}: {where}")

    def moved(self, pool: PoolState, decision: Decision) -> None:
        """Report the moves of a decision, if it has any."""
        moves = decision.moves
        for move in moves:
            self._metrics.moves.labels(str(move.reason)).inc(move.vreplicas)
        vpod = pool.vpods.get(decision.vpod)
        if moves and vpod is not None:
            self._event(vpod, EventReason.MOVED, "; ".join(move.sentence() for move in moves))

    def status_written(self, old: VPod, new: VPod) -> None:
        """Report whenever vreplicas are lost or the reason gets worse, and when all are served
        again.

        A vpod whose pods are only starting has lost nothing. A vpod that waited for a place gets
        the event Scheduled instead. The stored status remembers what was reported, so another
        leader does not report it again.
        """
        before, after = condition_of(old), condition_of(new)
        if before is None or after is None:
            return
        change = told_change(_served(old, before), _served(new, after))
        if change is EventReason.UNAVAILABLE or (change is not None and after.status == "True"):
            self._event(new, change, after.message)

    def would_move(self, vpod: VPod, note: str) -> None:
        """Report what an evictor in a dry run would do."""
        self._event(vpod, EventReason.WOULD_MOVE, note)

    def write_refused(self, regarding: ObjectReference, note: str) -> None:
        """Report on an object that the API server forbids a write; the
        ``Report`` of ``WriteRefusals``.
        """
        self._recorder.event(
            regarding,
            reason=EventReason.WRITE_REFUSED,
            note=f"{note}; check the roles of the scheduler service's ServiceAccount, and "
            f"admission policies and webhooks",
        )

    def _event(self, vpod: VPod, reason: EventReason, note: str, *, cause: str = "") -> None:
        if vpod.source:
            return
        regarding = ObjectReference(API_VERSION, "VPod", vpod.namespace, vpod.name, vpod.uid)
        self._recorder.event(regarding, reason=reason, note=note, cause=cause)


def _served(vpod: VPod, available: Condition) -> Served:
    ready = vpod.ready_vreplicas or 0
    return Served(available.reason, ready, sum(vpod.placements.values()) - ready)


def has_grown(decision: Decision) -> bool:
    """Whether the decision gives a place to vreplicas that had none."""
    return any(step.step is Step.ADDED for step in decision.explanation.steps)
