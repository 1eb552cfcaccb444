"""``Eviction``: the attempts to evict an adapter pod whose shares are handed over first.

They are stored on the pod:

.. code-block:: text

    vreplica.dev/evicting  {"uid": "…", "first": "2026-12-01T10:00:00Z", "latest": "…T10:00:20Z"}

The webhook refuses the eviction and writes the annotation. While it is there, the leader places
what the pod carries elsewhere. Once nobody has tried again for ``FRESH_S``, the leader removes it.

A rollout (``engine.scaling.rollout``) and descheduling (``node.descheduling``) take pods in the
same way. The leader itself writes the annotation then, with ``"reason": "Rollout"`` or
``"Maintenance"``.

An eviction waits for its turn, as ``spec.handoff.maxUnavailable`` says
(``engine.scaling.unavailable``). The leader adds ``"turn"``, since when the pod hands its shares
over, or ``"queued": true`` if it has to wait, and why in ``"behind"``. Where no leader is there to
do either, the eviction does not wait for long. A rollout needs no turn: it marks a pod when it is
the pod's turn.
"""

from typing import Final, NamedTuple

import orjson

from extender.model.moves import MoveReason
from extender.model.names import EVICTING_ANNOTATION
from extender.model.objects import AdapterPod, AdapterPool, Handoff
from extender.model.timestamps import epoch_s, timestamp

FRESH_S: Final = 300.0
"""An eviction that nobody has tried for so long is given up. kubectl tries every 5 s."""
MARK_AGAIN_S: Final = 100.0
"""The leader renews its own marks so often (s), so that nobody takes them for given up."""
DEADLINE_MARGIN_S: Final = 60.0
"""Beyond two attempts of a hand-over: their planning may wait for room."""
TURN_MAX_S: Final = 1800.0
"""An eviction waits for its turn at most so long."""
BEHIND_CHARS_MAX: Final = 500
VOLUNTARY_DISRUPTIONS: Final = (MoveReason.EVICTED, MoveReason.ROLLOUT, MoveReason.MAINTENANCE)
"""Why a pod hands its shares over and goes. Adapters are told them as ``intent``."""


class Eviction(NamedTuple):
    """The attempts to evict one pod, in epoch seconds."""

    first_s: float
    latest_s: float
    reason: MoveReason = MoveReason.EVICTED
    """One of ``VOLUNTARY_DISRUPTIONS``."""
    turn_s: float | None = None
    """When the leader has given it its turn, None if it has not. A rollout needs none."""
    queued: bool = False
    """Whether the leader has said that it has to wait for its turn."""
    behind: str = ""
    """Why it has to, for people: at most ``BEHIND_CHARS_MAX``."""

    @property
    def by_leader(self) -> bool:
        """Whether the leader has marked the pod, for a rollout or for maintenance."""
        return self.reason is not MoveReason.EVICTED

    def is_fresh(self, now_s: float) -> bool:
        """Whether somebody still tries."""
        return now_s - self.latest_s < FRESH_S

    def fades(self, pool: AdapterPool, now_s: float) -> bool:
        """Whether the leader has to renew a mark of its own: nobody must take it for given up, and
        the webhook must see that it is over.
        """
        ends_at_s = self.ends_at_s(pool)
        return now_s - self.latest_s > MARK_AGAIN_S or now_s > ends_at_s >= self.latest_s

    @property
    def waits(self) -> bool:
        """Whether it waits for its turn."""
        return self.turn_s is None and self.reason is not MoveReason.ROLLOUT

    def is_over(self, pool: AdapterPool, now_s: float) -> bool:
        """Whether the pod goes now, whatever it still has.

        The leader's own marks end by its clock, which their ``latest_s`` tells: the webhook's clock
        may be behind or ahead (seed 70002264). If there is no leader, they end ``FRESH_S`` later.
        """
        ends_at_s = self.ends_at_s(pool)
        if not self.by_leader:
            return now_s > ends_at_s
        return self.latest_s > ends_at_s or now_s > ends_at_s + FRESH_S

    def ends_at_s(self, pool: AdapterPool) -> float:
        """When the pod goes, whatever it still has."""
        if self.waits and self.queued:
            return self.first_s + TURN_MAX_S + deadline_s(pool)
        return (self.first_s if self.turn_s is None else self.turn_s) + deadline_s(pool)


def longest_s(handoff: Handoff) -> float:
    """How long one hand-over takes at most: the new adapter has the same time to get ready and then
    to serve, and the old one has its own to let go.
    """
    return 2 * handoff.prepare_timeout_s + handoff.drain_timeout_s


def deadline_s(pool: AdapterPool) -> float:
    """For how long after the first attempt, or its turn, an eviction waits for the hand-over: for
    a second one, too, if an adapter did not get ready in time for the first.
    """
    handoff = pool.handoff or Handoff()
    return handoff.prepare_timeout_s + longest_s(handoff) + DEADLINE_MARGIN_S


def encode_eviction(eviction: Eviction, uid: str) -> str:
    """Return the annotation's text for the pod with this UID."""
    times = {"first": timestamp(eviction.first_s), "latest": timestamp(eviction.latest_s)}
    by_us = eviction.reason is not MoveReason.EVICTED
    reason = {"reason": str(eviction.reason)} if by_us else {}
    turn = {"turn": timestamp(eviction.turn_s)} if eviction.turn_s is not None else {}
    queued = {"queued": True, "behind": eviction.behind} if eviction.queued else {}
    return orjson.dumps({"uid": uid, **times, **reason, **turn, **queued}).decode()


def mark_patch(pod: AdapterPod, eviction: Eviction) -> dict[str, object]:
    """The merge patch that writes the annotation. It applies only to this pod, not to the next one
    of its name, and only if nobody has changed it.
    """
    return {
        "metadata": {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {EVICTING_ANNOTATION: encode_eviction(eviction, pod.uid)},
        }
    }


def eviction_of(pod: AdapterPod) -> Eviction | None:
    """Read the pod's annotation. None if it is absent, is not what ``encode_eviction`` has written,
    or is about another pod: a template may carry it.
    """
    if pod.evicting_text is None:
        return None
    try:
        plain = orjson.loads(pod.evicting_text)
        if plain["uid"] != pod.uid:
            return None
        first_s, latest_s = (epoch_s(str(plain[name]), -1.0) for name in ("first", "latest"))
        by_us = [reason for reason in VOLUNTARY_DISRUPTIONS if reason == plain.get("reason")]
        turn_s = epoch_s(str(plain["turn"]), -1.0) if "turn" in plain else None
        queued, behind = plain.get("queued") is True, str(plain.get("behind", ""))
    except (ValueError, TypeError, KeyError):
        return None
    reason = by_us[0] if by_us else MoveReason.EVICTED
    if not 0 <= first_s <= latest_s or (turn_s is not None and turn_s < 0):
        return None
    return Eviction(first_s, latest_s, reason, turn_s, queued, behind)


def evicted_for(pod: AdapterPod, pool: AdapterPool) -> MoveReason | None:
    """Why the pod is to hand its shares over and go: one of ``VOLUNTARY_DISRUPTIONS``. None: it
    stays, or waits for its turn.
    """
    eviction = eviction_of(pod) if pool.hands_over else None
    return None if eviction is None or eviction.waits else eviction.reason


def has_to_wait(pod: AdapterPod, pool: AdapterPool) -> bool:
    """Whether the pod serves anything that is handed over before it is evicted."""
    serves = pod.ready and not (pod.finished or pod.deleting)
    carries = bool(pod.ledger or pod.ledger_error)  # what cannot be read may be anything
    return pool.hands_over and serves and carries
