"""``Eviction``: the attempts to evict an adapter pod whose shares are handed over first.

They are stored on the pod:

.. code-block:: text

    vreplica.dev/evicting  {"uid": "…", "first": "2026-12-01T10:00:00Z", "latest": "…T10:00:20Z"}

The webhook refuses the eviction and writes the annotation. While it is there, the leader places
what the pod carries elsewhere. Once nobody has tried again for ``FRESH_S``, the leader removes it.

A rollout (``engine.scaling.rollout``) takes a pod in the same way. The leader itself writes the
annotation then, with ``"reason": "Rollout"``.
"""

from typing import Final, NamedTuple

import orjson

from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, AdapterPool, Handoff
from extender.model.timestamps import epoch_s, timestamp

FRESH_S: Final = 300.0
"""An eviction that nobody has tried for so long is given up. kubectl tries every 5 s."""
DEADLINE_MARGIN_S: Final = 60.0
"""Beyond two attempts of a hand-over: their planning may wait for room."""


class Eviction(NamedTuple):
    """The attempts to evict one pod, in epoch seconds."""

    first_s: float
    latest_s: float
    reason: MoveReason = MoveReason.EVICTED
    """``EVICTED`` or ``ROLLOUT``."""

    def is_fresh(self, now_s: float) -> bool:
        """Whether somebody still tries."""
        return now_s - self.latest_s < FRESH_S


def longest_s(handoff: Handoff) -> float:
    """How long one hand-over takes at most: the new adapter has the same time to get ready and then
    to serve, and the old one has its own to let go.
    """
    return 2 * handoff.prepare_timeout_s + handoff.drain_timeout_s


def deadline_s(pool: AdapterPool) -> float:
    """For how long after the first attempt an eviction waits for the hand-over: for a second one,
    too, if an adapter did not get ready in time for the first.
    """
    handoff = pool.handoff or Handoff()
    return handoff.prepare_timeout_s + longest_s(handoff) + DEADLINE_MARGIN_S


def encode_eviction(eviction: Eviction, uid: str) -> str:
    """Return the annotation's text for the pod with this UID."""
    times = {"first": timestamp(eviction.first_s), "latest": timestamp(eviction.latest_s)}
    rollout = eviction.reason is MoveReason.ROLLOUT
    reason = {"reason": str(eviction.reason)} if rollout else {}
    return orjson.dumps({"uid": uid, **times, **reason}).decode()


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
        rollout = plain.get("reason") == MoveReason.ROLLOUT
    except (ValueError, TypeError, KeyError):
        return None
    reason = MoveReason.ROLLOUT if rollout else MoveReason.EVICTED
    return Eviction(first_s, latest_s, reason) if 0 <= first_s <= latest_s else None


def evicted_for(pod: AdapterPod) -> MoveReason | None:
    """Why the pod is to go, as its annotation says: ``EVICTED`` or ``ROLLOUT``. None: it stays."""
    eviction = eviction_of(pod)
    return eviction.reason if eviction is not None else None
