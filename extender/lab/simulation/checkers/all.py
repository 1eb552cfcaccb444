"""Runs the checkers of the invariants after every write to the API server.

    I1 never overcommitted  ``OvercommitChecker``, on every ledger that the service writes; no
                            update of a ledger is lost
    I2 covered              ``CoverageChecker``, on every write of a pod or a status
    I3 nothing lost         ``ScaleDownChecker``, while faults happen;
                            ``settled.Stored.differences``, after they have stopped
    I4 no needless move     ``MoveChecker``, on every status: what leaves a pod has a reason that
                            the store confirms
    I6 exclusive            ``ExclusiveChecker``: adapters never serve more than is published
    I7 no gap               ``HandoverChecker``: a planned move takes no share out of service
    I8 limited              ``MaxUnavailableChecker``: voluntary disruptions take no more pods
    I5 bind is idempotent   ``binds.BindChecker``, on binds that are sent twice; and
                            ``replica_state.state_problems``: no reservation is left

``HonestyChecker`` checks statuses, ``CallerChecks`` the answers to callers of ``/v1/schedule``,
``AssignmentChecker`` what adapters are told, and ``ReportingChecker`` events. ``Checkers`` passes
each write to all of them.

The checkers use nothing that the engine decides. They read annotations and statuses as JSON, and
know nothing of plans and caches. Only ``state_problems`` reads the memory of replicas, once all is
at rest.

The checkers also learn from the store why the service decides something (``Causes``): an annotated
pod, a removed ordinal, a ledger that a person has edited. A cause *excuses* what it explains for
``EXCUSE_S``, because a decision may be that old when it is written. What was excused must be
corrected in the end: ``differences`` checks this after the faults have stopped.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from extender.kube.api import Obj
from extender.lab.apiserver.store import Change
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.assignments import AssignmentChecker
from extender.lab.simulation.checkers.budgets import Budgets
from extender.lab.simulation.checkers.caller_checks import CallerChecks
from extender.lab.simulation.checkers.causes import Causes
from extender.lab.simulation.checkers.context import CheckerContext, by_service
from extender.lab.simulation.checkers.coverage import CoverageChecker
from extender.lab.simulation.checkers.coverage_excuses import CoverageExcuses
from extender.lab.simulation.checkers.edited_records import EditedRecords
from extender.lab.simulation.checkers.exclusive import ExclusiveChecker
from extender.lab.simulation.checkers.excuses import Circumstances, Excuses
from extender.lab.simulation.checkers.handovers import HandoverChecker
from extender.lab.simulation.checkers.honesty import HonestyChecker
from extender.lab.simulation.checkers.load_conditions import load_differences
from extender.lab.simulation.checkers.max_unavailable import MaxUnavailableChecker
from extender.lab.simulation.checkers.moves import MoveChecker
from extender.lab.simulation.checkers.overcommit import OvercommitChecker
from extender.lab.simulation.checkers.quarantine import QuarantineChecker
from extender.lab.simulation.checkers.reporting import ReportingChecker
from extender.lab.simulation.checkers.scale_down import ScaleDownChecker
from extender.lab.simulation.checkers.settled import Stored
from extender.lab.simulation.checkers.tenancy import TenancyChecker
from extender.lab.simulation.world.facts import ACKNOWLEDGED, POOL, Pod, VPod, read_pod, read_vpod
from extender.lab.simulation.world.streams import read_stream
from extender.model.names import EVICTING_ANNOTATION
from extender.model.reading import condition_in

VIOLATIONS_MAX: Final = 200
WRITES_MAX: Final = 20_000
"""The limit in one second of virtual time. A service that reaches it makes no progress."""
_RENEWED: Final = re.compile(r'"(latest|renewed|behind)":"[^"]*"')


class Checkers:
    """Subscribe ``on_change`` to the store. ``violations`` collects the findings; ``moves`` counts
    vreplicas by reason.
    """

    def __init__(
        self,
        trace: Callable[[str], None] = lambda _line: None,
        circumstances: Circumstances | None = None,
    ) -> None:
        circumstances = circumstances or Circumstances()
        self._two_lead = circumstances.two_lead
        self._trace = trace
        self.violations: list[str] = []
        self.give_up: Callable[[], object] = lambda: None
        """Called when the run cannot give any new finding."""
        self._writes_in: tuple[int, int] = (0, 0)
        """A second, and the number of writes in it so far."""
        self.stored = Stored()
        self.pods, self.vpods, self.pools = self.stored.pods, self.stored.vpods, self.stored.pools
        self.last_write_s: dict[str, float] = {}
        """Plural -> time of the last write. Renewals of pods' marks and leases are left out, and
        so are new reasons of a refusal (``_refused_otherwise``).
        """
        self._were_bound: set[str] = set()
        """Names of the pods that have had a node."""
        self._clock = asyncio.get_running_loop().time
        self._excuses = Excuses(self._clock, circumstances.excuse_s)
        self._edited_records = EditedRecords(self._excuses)
        coverage_excuses = CoverageExcuses(self._clock)
        context = CheckerContext(
            self.stored,
            self._excuses,
            self._edited_records,
            coverage_excuses,
            circumstances,
            trace,
            self._violated,
        )
        self._budgets = Budgets(self._clock, circumstances)
        self._overcommit = OvercommitChecker(context)
        self._coverage = CoverageChecker(context)
        self._scale_down = ScaleDownChecker(context)
        self._honesty = HonestyChecker(context)
        self.tenancy = TenancyChecker(context)
        self._moves = MoveChecker(context, self._budgets, self.tenancy)
        self._reporting = ReportingChecker(context)
        self._assignments = AssignmentChecker(context)
        self.exclusive = ExclusiveChecker(context)
        self.quarantine = QuarantineChecker(context)
        self.handovers = HandoverChecker(context, self._moves.presence)
        self.max_unavailable = MaxUnavailableChecker(context)
        self.moves = self._moves.made
        self.callers = CallerChecks(context, self._moves)
        self._causes = Causes(context, self._budgets, self._moves.presence, self.callers)
        self._last_read: dict[str, Obj] = {}
        """Pod name -> the object from which its ``Pod`` was read."""
        self._handlers: dict[str, Callable[[Obj | None, Obj | None], None]] = {
            "vpods": partial(self._vpod_changed, read_vpod),
            "streams": partial(self._vpod_changed, read_stream),
            "adapterpools": self._pool_changed,
            "vreplicaquotas": self.tenancy.quota_changed,
            "statefulsets": self._stateful_set_changed,
            "nodes": self._causes.node_changed,
            "namespaces": self._causes.namespace_changed,
            "leases": self._lease_changed,
            "events": self._reporting.event_changed,
        }

    def differences(self) -> list[str]:
        """Describe what is not correct yet. An empty list means settled."""
        return [
            *self.stored.differences(),
            *load_differences(self.pools, self.pods.values()),
            *self._assignments.differences(),
            *self.tenancy.differences(),
        ]

    def on_change(self, kind: tuple[str, str], change: Change) -> None:
        """Check a write. The store calls this."""
        self._count_write(int(self._clock()))
        before = change.before.obj if change.before is not None else None
        after = change.after.obj if change.after is not None else None
        metadata = (after or before or {})["metadata"]
        if not (_only_renews(before, after) or self._refused_otherwise(before, after)):
            self.last_write_s[kind[1]] = self._clock()
        if by_service():
            self._budgets.wrote(ACTOR.get())
        if kind[1] == "pods" and POOL in (metadata.get("labels") or {}):
            self._pod_changed(before, after)
        elif kind[1] in self._handlers:
            self._handlers[kind[1]](before, after)
        self._reporting.look()

    def _refused_otherwise(self, before: Obj | None, after: Obj | None) -> bool:
        """Whether kube-scheduler only tells another reason why a pod with shares fits no node.
        Which replica is asked differs from attempt to attempt, and each renewed lease of another
        pod begins new attempts.

        Some replicas do not know all that the zone rule looks at. Only the leader knows the share
        of a caller while the pod is away (seed 250000207). And a replica that has started since
        does not know in which zone a pod was that has no node now (seed 590001511).
        """
        if before is None or after is None or not _differ_in_refusal(before, after):
            return False
        name = after["metadata"]["name"]
        here = [vpod for vpod in self.vpods.values() if name in vpod.placements]
        away = {pod for pod in self._were_bound if pod not in self.pods or not self.pods[pod].node}
        return any(vpod.by_caller or not away.isdisjoint(vpod.placements) for vpod in here)

    def _count_write(self, second: int) -> None:
        count = self._writes_in[1] + 1 if self._writes_in[0] == second else 1
        self._writes_in = (second, count)
        if count == WRITES_MAX:
            self._violated(f"{count} writes in one second, and no end of it")
            self.give_up()

    def _lease_changed(self, before: Obj | None, after: Obj | None) -> None:
        self._reporting.lease_written()
        if self._causes.lease_changed(before, after):
            self._reporting.leader_changed()

    def _pool_changed(self, before: Obj | None, after: Obj | None) -> None:
        self._causes.pool_changed(before, after)
        self.tenancy.pool_changed(before, after)
        self.max_unavailable.pool_changed((after or before or {})["metadata"]["name"])

    def _stateful_set_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None:
            pool, removed = self._causes.stateful_set_changed(after)
            self.max_unavailable.stateful_set_changed(pool)
            if by_service() and not self._two_lead():
                self._scale_down.check(pool, removed)

    # -- pods --------------------------------------------------------------------------------------

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        old = self._read_before(before) if before is not None else None
        for cause in old.excuses if old is not None else ():
            self._excuses.note(cause)
        if after is None:
            self._assignments.pod_changed(before, None, None)
            self.handovers.pod_changed(before, None, old)
            self._pod_gone(
                (before or {})["metadata"]["name"], was_bound=old is not None and bool(old.node)
            )
            return
        pod = self.pods[after["metadata"]["name"]] = read_pod(after)
        self._last_read[pod.name] = after
        self._assignments.pod_changed(before, after, pod)
        self.handovers.pod_changed(before, after, old)
        self.exclusive.pod_changed(before, after)
        self.quarantine.pod_changed(before, after, pod)
        self.max_unavailable.pod_changed(after)
        self.stored.amounts.update(pod.amounts)
        self._moves.pod_seen(pod)
        self._budgets.pod_seen(pod)
        if pod != old:
            gone = ", deleting" if pod.deleting else ", leaving" if pod.leaves else ""
            self._trace(
                f"    {pod.name} on {pod.node or 'no node'}, {pod.slots} slots, {pod.text}{gone}"
            )
        if not pod.node:
            return
        self._were_bound.add(pod.name)
        bound_now = old is None or not old.node
        rewritten = bound_now or old is None or pod.text != old.text
        if rewritten:
            self._coverage.ledger_written(pod, by_service=by_service(), bound_now=bound_now)
        if by_service():
            if bound_now and not self._two_lead():
                self.callers.bound(pod, ACTOR.get())
            if before is not None:
                self._overcommit.check_write(before, after)
            if rewritten:
                self._overcommit.check_ledger(pod, None if bound_now else old)
        self._coverage.check_pod(pod)
        self._overcommit.seen(pod)

    def _pod_gone(self, name: str, *, was_bound: bool) -> None:
        self.pods.pop(name, None)
        self._last_read.pop(name, None)
        self._moves.presence.pod_gone(name)
        if was_bound:
            # The predecessor's ledger is still the last one that was seen: an unbound pod has none.
            self.callers.pod_gone(name)

    def _read_before(self, before: Obj) -> Pod:
        """Return the pod before a change. If this very object was read, reuse the result."""
        name = before["metadata"]["name"]
        known = self.pods.get(name)
        return (
            known if known is not None and self._last_read.get(name) is before else read_pod(before)
        )

    # -- vpods -------------------------------------------------------------------------------------

    def _vpod_changed(
        self, read: Callable[[Obj], VPod], before: Obj | None, after: Obj | None
    ) -> None:
        old = read(before) if before is not None else None
        if after is None:
            if old is not None:
                self.vpods.pop(old.key, None)
                self.exclusive.status_written(old)
                self._edited_records.status_is_gone(old.key)
            return
        new = read(after)
        self.vpods[new.key] = new
        self.stored.amounts[new.key] = new.amounts
        if new != old:
            self._trace(
                f"    {new.key} wants {new.wanted} of {new.weight} (generation {new.generation}), "
                f"in {new.pool}, has {dict(new.placements)} ({new.observed}), {new.condition}"
            )
        if old is not None and old.pool != new.pool:
            self._excuses.note(f"pool {new.key}")
        if old is not None:
            self.quarantine.vpod_changed(old, new)
        self._overcommit.limited(old, new)
        self._edited_records.weighed(old, new)
        if old is not None and by_service():
            self._honesty.check_others(old, new)
        if old is not None and old.placements != new.placements:
            self.exclusive.status_written(old)
        if old is not None and (old.placements, old.condition) != (new.placements, new.condition):
            if by_service() and not self._two_lead():
                self._check_status(old, new)
                self._reporting.status_written(old, new)
            else:
                self._edited_records.status_edited(new)
        self._coverage.check_vpod(new)

    def _check_status(self, old: VPod, new: VPod) -> None:
        was_edited = self._edited_records.was_edited(new.key)
        self._overcommit.status_written(old, new)
        if not was_edited:
            self._honesty.check_allowed(old, new)
            self._honesty.check_gang(old, new)
            self.tenancy.check_limit(old, new)
        self._moves.check(old, new, was_edited=was_edited)
        if not was_edited:
            self.handovers.check_status(old, new)
        self._honesty.check_scheduled(new)

    def _violated(self, what: str) -> None:
        self._trace(f"VIOLATED {what}")
        self.violations.append(f"at {self._clock():.3f} s: {what}")
        if len(self.violations) == VIOLATIONS_MAX:
            self.give_up()


def _only_renews(before: Obj | None, after: Obj | None) -> bool:
    """Whether a write only says that a pod's eviction still waits, or its lease was renewed. A
    rollout waits without an end for a pod that has room on no node (seed 20000222).
    """
    told = [(obj or {}).get("metadata", {}).get("annotations") or {} for obj in (before, after)]
    texts = [[one.get(name, "") for name in (EVICTING_ANNOTATION, ACKNOWLEDGED)] for one in told]
    first, second = ([_RENEWED.sub("", text) for text in pair] for pair in texts)
    return texts[0] != texts[1] and first == second


def _differ_in_refusal(before: Obj, after: Obj) -> bool:
    """Whether two versions of a pod differ only in the message of ``PodScheduled=False``."""
    first, second = (condition_in(obj, "PodScheduled") for obj in (before, after))
    return (
        first.get("status") == second.get("status") == "False"
        and first.get("message") != second.get("message")
        and _without_message(before) == _without_message(after)
    )


def _without_message(pod: Obj) -> Obj:
    """The pod without its version and that message. A patch of a condition reorders them."""
    conditions = {
        one["type"]: {**one, "message": ""} if one["type"] == "PodScheduled" else one
        for one in pod["status"]["conditions"]
    }
    return {
        **pod,
        "metadata": {**pod["metadata"], "resourceVersion": ""},
        "status": {**pod["status"], "conditions": conditions},
    }
