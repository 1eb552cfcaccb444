"""What a service keeps: every container that is reachable from it, with a path by which it is
found.

It is for tests of growth. What a container is for does not matter here, so one that is added
tomorrow is counted as well.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sized
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from weakref import WeakValueDictionary

OURS = ("extender.", "prometheus_client.")
NOT_OURS = ("extender.lab.",)
"""The cluster that the service works on is no part of it."""


def containers(root: object) -> Iterator[tuple[str, Sized]]:
    """(path, container) of all that is reachable from ``root``, each once."""
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([(type(root).__name__, root)])
    while waiting:
        path, item = waiting.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping | list | set | deque | WeakValueDictionary):
            yield path, item
        waiting.extend((path + step, part) for step, part in _parts(item))


def larger(root: object, most: int) -> dict[str, int]:
    """Path -> size of the containers that hold more than ``most``; a deque that drops what is
    oldest has its own limit.
    """
    return {
        path: len(item)
        for path, item in containers(root)
        if len(item) > most and getattr(item, "maxlen", None) is None
    }


def _parts(item: object) -> Iterator[tuple[str, object]]:
    """What is reachable in one step, with how it is called."""
    if isinstance(item, Mapping):
        for key, value in list(item.items()):
            yield f"[{str(key)[:40]}]", value
    elif isinstance(item, list | tuple | set | frozenset | deque):
        yield from ((f"[{index}]", value) for index, value in enumerate(list(item)))
    elif isinstance(item, MethodType | BuiltinMethodType):
        yield ".__self__", item.__self__
    elif isinstance(item, partial):
        yield from ((".partial", part) for part in (item.func, item.args, item.keywords))
    elif isinstance(item, FunctionType):
        cells = zip(item.__code__.co_freevars, item.__closure__ or (), strict=True)
        yield from ((f".<{name}>", cell.cell_contents) for name, cell in cells)
    elif type(item).__module__.startswith(OURS) and not type(item).__module__.startswith(NOT_OURS):
        names = [*getattr(item, "__dict__", {}), *_slots(type(item))]
        yield from ((f".{name}", getattr(item, name)) for name in names if hasattr(item, name))


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
