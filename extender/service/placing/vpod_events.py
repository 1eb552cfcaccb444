"""``VPodEvents``: reports decisions to the users of a vpod, by events on its object and the metric
of moves. The object is a VPod, or one of a foreign kind that is watched.

Every move is reported with its reason (I4): in an event, in the metric, and in the Moved condition
(``vpod_status``).
"""

from collections.abc import Callable, Sequence

from extender.engine.placing.explain import Step
from extender.engine.placing.plan import Decision
from extender.engine.state.availability import condition_of, served_of, told_change
from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, ObjectReference
from extender.model.counted import counted_are
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPod, VPod
from extender.model.reasons import ConflictReason
from extender.telemetry.metrics import Metrics

ForeignReference = Callable[[VPod], ObjectReference | None]
"""(vpod that is not a VPod) -> the object that events are about; None if there is none."""


def no_reference(_vpod: VPod) -> None:
    """The ``ForeignReference`` where no foreign kind is watched."""


class VPodEvents:
    """Reports each decision that has been written."""

    def __init__(
        self,
        recorder: EventRecorder,
        metrics: Metrics,
        foreign_reference: ForeignReference = no_reference,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._foreign_reference = foreign_reference

    def decided(self, pool: PoolState, decision: Decision, *, newly: bool) -> None:
        """Report that a vpod was placed as far as possible. ``newly``: it was not Scheduled
        before.
        """
        self.moved(pool, decision)
        vpod = pool.vpods.get(decision.vpod)
        if vpod is None:
            return
        self._preempted(pool, vpod, decision)
        note = decision.explanation.outcome()
        explanation = decision.explanation
        if explanation.exceeds_quota or not explanation.is_satisfied:
            cause = str(explanation.told_reason or "")
            self._event(vpod, EventReason.FAILED_SCHEDULING, note, cause=cause)
        elif decision.target and (newly or has_grown(decision)):
            where = ", ".join(f"{count} on {name}" for name, count in decision.target.items())
            self._event(vpod, EventReason.SCHEDULED, f"{note}: {where}")

    def _preempted(self, pool: PoolState, vpod: VPod, decision: Decision) -> None:
        """Report to both sides that slots go from vpods to others of a higher priority."""
        if pool.adapter_pool is None or pool.adapter_pool.preemption is None:
            return
        left_out = vpod.not_admitted
        if left_out is not None and left_out.reason is ConflictReason.PREEMPTED:
            lost = sum(
                one.vreplicas for one in decision.explanation.steps if one.step is Step.REMOVED
            )
            if lost:
                self._metrics.preempted_vreplicas.inc(lost)
                which = counted_are(lost, "vreplica")
                self._event(vpod, EventReason.PREEMPTED, f"{which} taken: {left_out.why}")
            return
        taken = pool.tenancy.end_taking(vpod.key) if pool.tenancy and has_grown(decision) else 0
        if taken:
            note = f"{counted_are(taken, 'slot')} taken from vpods of a lower priority"
            self._event(vpod, EventReason.PREEMPTED, note)

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
        before, after, told = served_of(old), served_of(new), condition_of(new)
        if before is None or after is None or told is None:
            return
        change = told_change(before, after)
        if change is EventReason.UNAVAILABLE or (change is not None and told.status == "True"):
            self._event(new, change, told.message)

    def would_move(self, vpod: VPod, note: str) -> None:
        """Report what an evictor in a dry run would do."""
        self._event(vpod, EventReason.WOULD_MOVE, note)

    def handover_timed_out(self, vpod: VPod, step: str, pods: Sequence[str]) -> None:
        """Report that adapters did not do in time what a hand-over waits for."""
        names = ", ".join(pods)
        if step == "prepare":
            note = f"the move is taken back: the adapter of {names} did not get ready in time"
            self._event(vpod, EventReason.PREPARE_TIMED_OUT, note)
        elif step == "serve":
            note = f"its former pods let go: the adapter of {names} did not begin to serve in time"
            self._event(vpod, EventReason.SERVE_TIMED_OUT, note)
        else:
            note = f"taken away from {names}: its adapter did not let go in time"
            self._event(vpod, EventReason.DRAIN_TIMED_OUT, note)

    def write_refused(self, obj: AdapterPod | VPod, note: str) -> None:
        """Report on an object that the API server forbids a write; the
        ``Report`` of ``WriteRefusals``.
        """
        note = (
            f"{note}; check the roles of the scheduler service's ServiceAccount, and "
            f"admission policies and webhooks"
        )
        if isinstance(obj, VPod):
            self._event(obj, EventReason.WRITE_REFUSED, note)
            return
        regarding = ObjectReference("v1", "Pod", obj.namespace, obj.name, obj.uid)
        self._recorder.event(regarding, reason=EventReason.WRITE_REFUSED, note=note)

    def _event(self, vpod: VPod, reason: EventReason, note: str, *, cause: str = "") -> None:
        regarding = (
            self._foreign_reference(vpod)
            if vpod.source
            else ObjectReference(API_VERSION, "VPod", vpod.namespace, vpod.name, vpod.uid)
        )
        if regarding is not None:
            self._recorder.event(regarding, reason=reason, note=note, cause=cause)


def has_grown(decision: Decision) -> bool:
    """Whether the decision gives a place to vreplicas that had none."""
    return any(step.step is Step.ADDED for step in decision.explanation.steps)
