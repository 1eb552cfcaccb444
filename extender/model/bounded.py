"""A dict with a limit, for what is only a memory: the oldest entry makes room for a new one."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def put_bounded(known: dict[K, V], key: K, value: V, items_max: int) -> None:
    """Put ``value`` into ``known`` as its newest entry. If ``known`` then has more than
    ``items_max``, drop the oldest one.
    """
    known.pop(key, None)
    if len(known) >= items_max:
        del known[next(iter(known))]
    known[key] = value
