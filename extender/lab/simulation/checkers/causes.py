"""Learns from the store why the service decides something: changes of pools, StatefulSets, nodes,
namespaces and Leases.

This module checks nothing. What it records excuses for a while what was decided because of it
(``Excuses``).
"""

from collections.abc import Mapping
from math import inf

from extender.kube.api import Obj
from extender.lab.simulation.checkers.budgets import Budgets
from extender.lab.simulation.checkers.caller_checks import CallerChecks
from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.checkers.moves import SPREADING
from extender.lab.simulation.checkers.presence import Presence
from extender.lab.simulation.world.facts import SLOTS, Pool, is_ready
from extender.model.names import ZONE_LABEL


class Causes(Checker):
    """Each method takes an object before and after a change; None if it does not exist."""

    def __init__(
        self, context: CheckerContext, budgets: Budgets, presence: Presence, callers: CallerChecks
    ) -> None:
        super().__init__(context)
        self._budgets = budgets
        self._presence = presence
        self._callers = callers

    def pool_changed(self, before: Obj | None, after: Obj | None) -> None:
        """Record an AdapterPool. Decisions may still follow its recent state."""
        pool = self._stored.pool((after or before or {})["metadata"]["name"])
        if pool.deleted:
            self._excuses.note(f"gone {pool.name}")
        pool.deleted = after is None
        if after is None:
            return
        slots, raised, selector = pool.slots, pool.min_pods_per_vpod, pool.selector
        capacities = pool.capacities
        for cause, holds in (
            ("profile", pool.profile in SPREADING),
            ("moving", before is not None and not pool.dry_run),
            ("load", pool.balances_load),
        ):
            if holds:
                self._excuses.note(f"{cause} {pool.name}")
        pool.read(after)
        if pool.selector != selector:
            self._excuses.note(f"selector {pool.name}")
        pool.limits_seen.append(
            (self._clock(), inf if pool.reschedule_after_s is None else pool.reschedule_after_s)
        )
        self._capacities_read(pool, capacities, is_new=before is None)
        if pool.slots != slots:
            self._edited_records.break_ledgers(
                name for name in self._every_pod(pool) if self._needed(name) > pool.slots
            )
            if before is not None:
                # This also excuses later pods: a late watch replays earlier states of the pool.
                self._excuses.note(f"slots {pool.name}")
            pool.slots_seen.append((self._clock(), pool.slots))
        if before is None or after["spec"] != before["spec"]:
            self._budgets.pool_changed(pool)
            self._trace(f"    {pool.name} is {after['spec']}")
        if pool.min_pods_per_vpod != raised:
            pool.raised_seen.append((self._clock(), pool.min_pods_per_vpod))

    def _capacities_read(self, pool: Pool, before: Mapping[str, int], *, is_new: bool) -> None:
        """Record what pods have beside slots, if that has changed."""
        if pool.capacities == before and pool.capacities_seen:
            return
        self._edited_records.break_ledgers(
            name
            for name in self._every_pod(pool)
            if any(self._taken(name, what) > most for what, most in pool.capacities.items())
        )
        if not is_new:
            self._excuses.note(f"slots {pool.name}")
        pool.capacities_seen.append((self._clock(), pool.capacities))

    def _every_pod(self, pool: Pool) -> set[str]:
        published = {name for vpod in self._stored.vpods.values() for name in vpod.placements}
        there = {pod.name for pod in self._stored.pods.values() if pod.pool == pool.name}
        return {*there, *published, *pool.names}

    def _needed(self, pod_name: str) -> int:
        """Return the slots of everything that is in the pod's ledger or published on the pod."""
        held = self._coverage_excuses.held(pod_name)
        published = self._stored.published(pod_name)
        weights = {key: vpod.weight for key, vpod in self._stored.vpods.items()}
        return sum(
            max(held.get(key, (0, 1))[0], published.get(key, 0))
            * max(held.get(key, (0, 1))[1], weights.get(key, 1))
            for key in {*held, *published}
        )

    def _taken(self, pod_name: str, dimension: str) -> int:
        """The same for a dimension."""
        held = self._coverage_excuses.held(pod_name)
        published = self._stored.published(pod_name)
        return sum(
            max(held.get(key, (0, 1))[0], published.get(key, 0))
            * self._stored.amounts.get(key, {}).get(dimension, 0)
            for key in {*held, *published}
        )

    def stateful_set_changed(self, after: Obj) -> tuple[Pool, set[int]]:
        """Return the set's pool, and the ordinals that were removed."""
        pool = self._stored.pool(after["metadata"]["name"])
        start = (after["spec"].get("ordinals") or {}).get("start", 0)
        ordinals = range(start, start + after["spec"]["replicas"])
        if ordinals != pool.ordinals:
            self._trace(f"    ordinals of {pool.name} are {ordinals}")
        removed = set(pool.ordinals) - set(ordinals)
        # Added ordinals count too: until now they were gone.
        for ordinal in set(pool.ordinals) ^ set(ordinals):
            self._excuses.note(f"gone {pool.name}-{ordinal}")
        for ordinal in removed:
            self._callers.ordinal_gone(f"{pool.name}-{ordinal}")
        pool.ordinals = ordinals
        return pool, removed

    def node_changed(self, before: Obj | None, after: Obj | None) -> None:
        """Record whether a node is Ready, its zone and its slots."""
        name = (after or before or {})["metadata"]["name"]
        ready = after is not None and is_ready(after)
        self._presence.node_seen(name, ready=ready, pods=self._stored.pods.values())
        (self._stored.ready_nodes.add if ready else self._stored.ready_nodes.discard)(name)
        if after is None:
            return
        self._stored.zone_of[name] = (after["metadata"].get("labels") or {}).get(ZONE_LABEL, "")
        if (slots := (after["status"].get("allocatable") or {}).get(SLOTS)) is not None:
            self._stored.node_slots[name] = int(slots)

    def namespace_changed(self, _before: Obj | None, after: Obj | None) -> None:
        """Record a namespace's labels, which decide the pools that it may use."""
        if after is None:
            return
        name, labels = after["metadata"]["name"], after["metadata"].get("labels") or {}
        if labels != self._stored.labels.get(name):
            self._excuses.note(f"labels {name}")
            self._stored.labels[name] = labels
            self._trace(f"    {name} has labels {labels}")

    def lease_changed(self, before: Obj | None, after: Obj | None) -> bool:
        """Return whether a Lease has a new holder, or a new term of the same holder. The leader's
        budget of moves then begins again.
        """
        changed = _term(before) != _term(after)
        if changed:
            self._budgets.leader_changed()
            self._callers.leader_changed()
        return changed


def _term(lease: Obj | None) -> tuple[object, ...]:
    spec = (lease or {}).get("spec", {})
    return tuple(spec.get(name) for name in ("holderIdentity", "acquireTime", "leaseTransitions"))
