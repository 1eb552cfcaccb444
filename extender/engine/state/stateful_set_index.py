"""``StatefulSetIndex``: which AdapterPools name a StatefulSet, which of them has it, and which pods
name it as their controller.

Several pools may name one StatefulSet. One of them has it (``owner_of``), and the others have none:
two pools would undo each other's scaling.
"""

from collections.abc import Mapping
from typing import TypeVar

from extender.model.objects import AdapterPod, AdapterPool, StatefulSet, object_key

T = TypeVar("T")


class StatefulSetIndex:
    """Only ``ClusterState``, which owns the mapping, changes it. ``stateful_sets``: by key."""

    def __init__(self, stateful_sets: Mapping[str, StatefulSet]) -> None:
        self._stateful_sets = stateful_sets
        self._pools: dict[str, dict[str, AdapterPool]] = {}
        """StatefulSet key -> pool key -> pool, for all pools that name it; never empty."""
        self._pods: dict[str, dict[str, AdapterPod]] = {}
        """StatefulSet key -> pod key -> pod, for all pods that name it as their controller, even if
        its UID is another; never empty.
        """

    @property
    def named(self) -> int:
        """How many StatefulSets pools name."""
        return len(self._pools)

    def pools_naming(self, key: str) -> Mapping[str, AdapterPool]:
        """Pool key -> pool, for the pools that name that StatefulSet."""
        return self._pools.get(key, {})

    def pods_of(self, key: str) -> Mapping[str, AdapterPod]:
        """Pod key -> pod, for the pods that name that StatefulSet as their controller."""
        return self._pods.get(key, {})

    def naming_the_same(self, *pools: AdapterPool | None) -> list[str]:
        """Keys of the pools that name the same StatefulSet as one of ``pools``. A change of one may
        change all.
        """
        keys = {pool.stateful_set_key for pool in pools if pool is not None}
        return sorted({name for key in keys for name in self.pools_naming(key)})

    def owner_of(self, key: str) -> str:
        """Key of the pool that has that StatefulSet: the first by ``_precedence``; "" if none names
        it.
        """
        naming, stateful_set = self.pools_naming(key), self._stateful_sets.get(key)
        return min(naming, key=lambda name: _precedence(naming[name], stateful_set), default="")

    def add_pool(self, pool: AdapterPool) -> None:
        """Take in a pool."""
        self._pools.setdefault(pool.stateful_set_key, {})[pool.key] = pool

    def remove_pool(self, pool: AdapterPool) -> None:
        """Forget a pool, by the StatefulSet that it named."""
        _remove(self._pools, pool.stateful_set_key, pool.key)

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """An adapter pod came, changed or went."""
        if old is not None and old.owner:
            _remove(self._pods, object_key(old.namespace, old.owner), old.key)
        if new is not None and new.owner:
            owner = object_key(new.namespace, new.owner)
            self._pods.setdefault(owner, {})[new.key] = new


def _remove(index: dict[str, dict[str, T]], key: str, name: str) -> None:
    entries = index.get(key, {})
    entries.pop(name, None)
    if not entries:
        index.pop(key, None)


def _precedence(pool: AdapterPool, stateful_set: StatefulSet | None) -> tuple[bool, bool, str, str]:
    """The sort key of the pools that name a StatefulSet: the lowest gets it. Every replica computes
    the same, in whatever order the objects came.

    The pool that the StatefulSet's pod template names comes first, since no other can use the pods.
    So nobody takes a StatefulSet over by naming it, and a pool that is deleted and created again
    gets its own back. Then comes the pool created first (by creationTimestamp, in whole seconds),
    pools not stored yet come last, and equal ones are sorted by name.
    """
    named = stateful_set is not None and stateful_set.template_pool == pool.name
    return (not named, not pool.created_at, pool.created_at, pool.name)
