"""``Player``: plays a recording into a state, entry by entry, and makes each of its decisions
again. Pure.

A decision is made again on the state on which it was made: everything before it is there, nothing
after it. So the same version with the same profiles decides the same. If another profile or version
decides differently, only that can be the cause. The recorded decision, not the new one, is what
happened: the next decision starts from it. (``rehearsal`` goes on from the new one.)

``Changes`` are applied to what is played, before the state sees it.

A recording of a cluster has no decisions. There, placements that another scheduler publishes count
as its decision (``observed``). Ours is made on the state right before, without ledgers: they are
written earlier and would give away the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from extender.engine.placing.plan import Decision, place, release_all
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.relocation import relocate
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.state_observer import Recorded
from extender.model.errors import InvalidObject
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod, AdapterPool, VPod
from extender.whatif.recording.entries import (
    Abandon,
    Cause,
    Close,
    Decided,
    EntryContent,
    Expire,
    Forget,
    Gone,
    Put,
    Release,
    Reserve,
    decided,
)
from extender.whatif.recording.objects import kind_of
from extender.whatif.settings import with_settings
from extender.whatif.trial import object_changed


@dataclass(frozen=True, slots=True)
class Changes:
    """What is played differently than recorded, in every pool. ``profile``: "" keeps each pool's
    own. ``settings``: fields in ``settings.OVER_TIME`` -> value.
    """

    profile: str = ""
    settings: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.profile or self.settings)

    def of_pool(self, pool: AdapterPool) -> AdapterPool:
        """The pool as it is played."""
        return with_settings(pool, self.settings, self.profile)

    def of_pod(self, pod: AdapterPod) -> AdapterPod:
        """The pod as it is played. With another slotsPerPod, the webhook would have stamped it
        differently.
        """
        return replace(pod, slots=None) if "slotsPerPod" in self.settings else pod


NO_CHANGES: Final = Changes()


Pair: TypeAlias = tuple[Decided, Decided | None]
"""A decision as recorded, and as made again; None if it is no longer possible."""


class Player:
    """Takes entries in order. ``state`` is the result so far."""

    def __init__(
        self, profiles: Mapping[str, Profile] = BUILT_IN_PROFILES, changes: Changes = NO_CHANGES
    ) -> None:
        self.observed = False
        """Whether published placements count as decisions."""
        self._profiles = profiles
        self._changes = changes
        self.state = ClusterState(profiles)
        self.objects: dict[tuple[str, str], Recorded] = {}
        """(kind, key) -> the newest version, as played."""

    def forget(self) -> None:
        """Forget everything: the snapshot that begins has it all."""
        self.state = ClusterState(self._profiles)
        self.objects.clear()

    def play(self, content: EntryContent) -> Pair | None:
        """Play one entry. Return both forms of a decision, None for another entry. Raises
        InvalidObject.
        """
        match content:
            case Put(VPod() as vpod) if self.observed:
                return self._observe(vpod)
            case Put(obj):
                self._put(self._changed(obj))
            case Gone(kind, key):
                if (old := self.objects.pop((kind, key), None)) is not None:
                    object_changed(self.state, old, None)
            case Decided():
                return content, self._decide(content)
            case _:
                self._note(content)
        return None

    def _note(self, content: Reserve | Release | Expire | Forget | Close | Abandon) -> None:
        """Apply a change to what the service itself remembers."""
        match content:
            case Reserve(pool, vpod, owner, shares, expires_at):
                self.state.reserve(owner, pool, vpod, shares, expires_at=expires_at)
            case Release(pool, vpod, owner):
                self.state.release(owner, pool, vpod)
            case Expire(now):
                self.state.expire(now)
            case Forget(pods):
                self.state.forget_last_ledgers(pods)
            case Close(pool, ordinals, in_doubt):
                self.state.pool(pool).set_closed(ordinals, in_doubt=in_doubt)
            case Abandon(pool, pods):
                self.state.pool(pool).set_abandoned(pods)

    def _put(self, obj: Recorded) -> None:
        place_of = (kind_of(obj), obj.key)
        old = self.objects.get(place_of)
        self.objects[place_of] = obj
        object_changed(self.state, old, obj)

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
        # The other scheduler has decided on what is wanted now, with the placements published
        # before.
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
        """Whether the published placements answer what the vpod wants now, in a pool that is
        known.
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
        pool.next_start_ordinal = recorded.start
        if vpod is None:
            return release_all(pool, recorded.vpod)
        if recorded.cause is Cause.MOVE:
            return relocate(pool, vpod, recorded.asked)
        allowed = self.state.selects(recorded.pool, vpod)
        return place(
            pool,
            vpod,
            allowed=allowed,
            leave_closed=recorded.cause is Cause.SCHEDULE,
            taken_back=recorded.cause is Cause.STAY,
        )


def without_ledger(pod: AdapterPod) -> AdapterPod:
    """The pod as if it carried nothing."""
    return replace(pod, ledger=EMPTY_LEDGER, ledger_text=None, ledger_error="")
