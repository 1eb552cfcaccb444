"""``Player``: a recording taken up by a state again, entry by entry, and each of its decisions made
again. Pure.

A decision is made on the state in which it was made then: all that had come before it is there, and
nothing that came after. So the same version with the same profiles decides the same, to the last
vreplica; and where another profile, or another version, does not, it is that which makes the
difference and nothing else. What the recorded decision did to the cluster stays what happened: the
next one starts from it, not from ours. (``rehearsal`` goes on from ours.)

``Changes`` are made to what is played, before the state sees it.

A recording of a cluster has no decisions. There what somebody else publishes is taken for one
(``observed``): ours is made on the state right before, of published placements only, for ledgers
that are written before would whisper the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from extender.engine.placing.plan import Decision, place, release_all
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.relocation import relocate
from extender.engine.state.state import State
from extender.engine.state.state_observer import Recorded
from extender.model.errors import InvalidObject
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.whatif.recording.entries import (
    Abandon,
    Cause,
    Close,
    Decided,
    Expire,
    Forget,
    Gone,
    Put,
    Release,
    Reserve,
    What,
    decided,
)
from extender.whatif.recording.objects import kind_of

T = TypeVar("T")

SETTABLE: Final[Mapping[str, tuple[str, int]]] = {
    "slotsPerPod": ("slots_per_pod", 1),
    "minPods": ("min_pods", 0),
    "minPodsPerVPod": ("min_pods_per_vpod", 0),
    "maxPods": ("max_pods", 0),
    "scaleDownPeriodSeconds": ("scale_down_period_s", 1),
    "movesPerPeriod": ("moves_per_period", 0),
    "cooldownSeconds": ("move_cooldown_s", 0),
}
"""Fields of an AdapterPool's spec that can be played otherwise -> the model's name and the lowest
value.
"""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is played otherwise than it was recorded, in every pool. ``profile`` "": each pool's
    own.
    """

    profile: str = ""
    settings: Mapping[str, int] = field(default_factory=dict)
    """Fields in ``SETTABLE`` -> value."""

    def __bool__(self) -> bool:
        """Whether anything is other than it was."""
        return bool(self.profile or self.settings)

    def of_pool(self, pool: AdapterPool) -> AdapterPool:
        """The pool as it is played."""
        named = {SETTABLE[name][0]: value for name, value in self.settings.items()}
        pool = replace(pool, profile=self.profile) if self.profile else pool
        return replace(pool, **named) if named else pool  # type: ignore[arg-type]  # all of them are counts

    def of_pod(self, pod: AdapterPod) -> AdapterPod:
        """The pod as it is played: had slotsPerPod been another one, pods would have been stamped
        with it.
        """
        return replace(pod, slots=None) if "slotsPerPod" in self.settings else pod


NO_CHANGES: Final = Changes()


Pair: TypeAlias = tuple[Decided, Decided | None]
"""A decision as it was recorded, and as it is made now; None where it is not possible any more."""


class Player:
    """Takes up entries in their order. ``state`` is what they have come to."""

    def __init__(
        self, profiles: Mapping[str, Profile] = BUILT_IN_PROFILES, changes: Changes = NO_CHANGES
    ) -> None:
        self.observed = False
        """Whether what is published counts as decided."""
        self._profiles = profiles
        self._changes = changes
        self.state = State(profiles)
        self.objects: dict[tuple[str, str], Recorded] = {}
        """(kind, key) -> the newest of it, as played."""

    def forget(self) -> None:
        """A snapshot begins: it has everything."""
        self.state = State(self._profiles)
        self.objects.clear()

    def play(self, what: What) -> Pair | None:
        """Take up one entry; both forms of a decision, None for what is none. Raises
        InvalidObject.
        """
        match what:
            case Put(VPod() as vpod) if self.observed:
                return self._observe(vpod)
            case Put(obj):
                self._put(self._changed(obj))
            case Gone(kind, key):
                if (old := self.objects.pop((kind, key), None)) is not None:
                    feed(self.state, old, None)
            case Decided():
                return what, self._decide(what)
            case _:
                self._note(what)
        return None

    def _note(self, what: Reserve | Release | Expire | Forget | Close | Abandon) -> None:
        """Take up what the service has decided to remember of itself."""
        match what:
            case Reserve(pool, vpod, owner, shares, expires_at):
                self.state.reserve(owner, pool, vpod, shares, expires_at=expires_at)
            case Release(pool, vpod, owner):
                self.state.release(owner, pool, vpod)
            case Expire(now):
                self.state.expire(now)
            case Forget(pods):
                self.state.forget_last_ledgers(pods)
            case Close(pool, ordinals):
                self.state.pool(pool).set_closed(ordinals)
            case Abandon(pool, pods):
                self.state.pool(pool).set_abandoned(pods)

    def _put(self, obj: Recorded) -> None:
        place_of = (kind_of(obj), obj.key)
        old = self.objects.get(place_of)
        self.objects[place_of] = obj
        feed(self.state, old, obj)

    def _changed(self, obj: Recorded) -> Recorded:
        match obj:
            case AdapterPool():
                pool = self._changes.of_pool(obj)
                if pool.profile not in self._profiles:
                    known = ", ".join(sorted(self._profiles))
                    raise InvalidObject(
                        f"AdapterPool {pool.key}",
                        "spec.profile",
                        f"{pool.profile!r} is not known here (known: {known}): give the "
                        f"configuration that has it",
                    )
                return pool
            case AdapterPod():
                pod = self._changes.of_pod(obj)
                return without_ledger(pod) if self.observed else pod
            case _:
                return obj

    def _observe(self, vpod: VPod) -> Pair | None:
        old = self.objects.get(("VPod", vpod.key))
        published = (
            isinstance(old, VPod) and old.uid == vpod.uid and old.placements != vpod.placements
        )
        if not isinstance(old, VPod) or not published or not self._answers(vpod):
            self._put(vpod)
            return None
        # What is wanted now, published as before: on that the other one has decided.
        asked = replace(vpod, placements=old.placements)
        self._put(asked)
        theirs = Decided(
            Cause.PLACE,
            vpod.pool,
            vpod.key,
            vpod.vreplicas,
            vpod.weight,
            {name: count for name, count in vpod.placements.items() if count},
            max(0, vpod.vreplicas - sum(vpod.placements.values())),
        )
        ours = self._decide(theirs)
        self._put(vpod)
        return theirs, ours

    def _answers(self, vpod: VPod) -> bool:
        """Whether what it publishes is somebody's answer to what it wants now, in a pool that we
        know.
        """
        pool = self.state.pools.get(vpod.pool)
        known = pool is not None and pool.adapter_pool is not None and pool.stateful_set is not None
        return known and not 0 < vpod.observed_generation < vpod.generation

    def _decide(self, recorded: Decided) -> Decided | None:
        decision = self._made(recorded)
        return decided(recorded.cause, decision, recorded.asked) if decision is not None else None

    def _made(self, recorded: Decided) -> Decision | None:
        pool = self.state.pool(recorded.pool)
        vpod = pool.vpods.get(recorded.vpod)
        if vpod is None:
            return release_all(pool, recorded.vpod)
        if recorded.cause is Cause.MOVE:
            return relocate(pool, vpod, recorded.asked)
        allowed = self.state.selects(recorded.pool, vpod)
        return place(pool, vpod, allowed=allowed, leave_closed=recorded.cause is Cause.SCHEDULE)


def without_ledger(pod: AdapterPod) -> AdapterPod:
    """The pod as if it carried nothing."""
    return replace(pod, ledger=EMPTY_LEDGER, ledger_text=None, ledger_error="")


def feed(state: State, old: Recorded | None, new: Recorded | None) -> None:
    """Tell a state of a changed object of any kind."""
    match new if new is not None else old:
        case AdapterPod():
            state.pod_changed(_as(AdapterPod, old), _as(AdapterPod, new))
        case AdapterPool():
            state.adapter_pool_changed(_as(AdapterPool, old), _as(AdapterPool, new))
        case Namespace():
            state.namespace_changed(_as(Namespace, old), _as(Namespace, new))
        case Node():
            state.node_changed(_as(Node, old), _as(Node, new))
        case StatefulSet():
            state.stateful_set_changed(_as(StatefulSet, old), _as(StatefulSet, new))
        case VPod():
            state.vpod_changed(_as(VPod, old), _as(VPod, new))
        case None:
            pass


def _as(kind: type[T], obj: Recorded | None) -> T | None:
    return obj if isinstance(obj, kind) else None
