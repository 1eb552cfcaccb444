"""What ``explain`` is asked about: ``ns/name``, ``name`` with or without ``-n``, and ``vpod/`` or
``pod/`` before either.
"""

from dataclasses import dataclass
from typing import Final

from extender.engine.state.state import State
from extender.model.errors import InvalidObject
from extender.whatif.explanation import UnknownObject, pool_of_vpod
from extender.whatif.pod_explanation import find_pod

KINDS: Final = {"vpod": "vpod", "vpods": "vpod", "pod": "pod", "pods": "pod"}
CHOICES_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """``kind`` is vpod, pod, or "" for whichever there is; ``namespace`` "" for any."""

    kind: str
    namespace: str
    name: str


def subject_from(text: str, namespace: str) -> Subject:
    """Read it as kubectl would: ``KIND/NAME`` where the first part is a kind, else
    ``NAMESPACE/NAME``. Raises InvalidObject.
    """
    parts = text.split("/")
    kind = ""
    if len(parts) == 3 or (len(parts) == 2 and parts[0].lower() in KINDS):
        kind = KINDS.get(parts[0].lower(), "?")
        parts = parts[1:]
    given = parts[0] if len(parts) == 2 else ""
    if (
        kind == "?"
        or not 1 <= len(parts) <= 2
        or not all(parts)
        or (given and namespace not in {"", given})
    ):
        raise InvalidObject(
            repr(text[:200]),
            "",
            "is not NAME, NAMESPACE/NAME, vpod/NAME or pod/NAME, with -n NAMESPACE where it names "
            "none",
        )
    return Subject(kind, given or namespace, parts[-1])


def resolve(state: State, subject: Subject) -> tuple[str, str]:
    """The kind and the key of what is meant. Raises UnknownObject, also where a bare name could be
    several.
    """
    if subject.namespace:
        return _by_key(state, subject.kind, f"{subject.namespace}/{subject.name}")
    found = sorted(
        [
            *(
                ("vpod", key)
                for pool in state.pools.values()
                for key in pool.vpods
                if _named(key, subject.name)
            ),
            *(
                ("pod", f"{pool.key.partition('/')[0]}/{subject.name}")
                for pool in state.pools.values()
                if (known := pool.pods.get(subject.name)) is not None and known.pod is not None
            ),
        ]
    )
    found = [one for one in found if subject.kind in {"", one[0]}]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{kind}/{key}" for kind, key in found[:CHOICES_LISTED])
        raise UnknownObject(
            f"{subject.name} could be {listed}: say which, by its namespace or kind"
        )
    vpods = sorted(key for pool in state.pools.values() for key in pool.vpods)
    listed = ", ".join(vpods[:CHOICES_LISTED]) + (", ..." if len(vpods) > CHOICES_LISTED else "")
    what = {"vpod": "vpod", "pod": "adapter pod"}.get(subject.kind, "vpod or adapter pod")
    raise UnknownObject(f"no {what} is named {subject.name}; the vpods are {listed or 'none'}")


def _named(key: str, name: str) -> bool:
    """Also without the kind that a foreign object's key ends with."""
    own = key.rpartition("/")[2]
    return name in {own, own.partition("@")[0]}


def _by_key(state: State, kind: str, key: str) -> tuple[str, str]:
    if kind == "pod":
        find_pod(state, key)
        return "pod", key
    try:
        pool_of_vpod(state, key)
    except UnknownObject:
        if kind:
            raise
        try:
            find_pod(state, key)
        except UnknownObject:
            pass
        else:
            return "pod", key
        raise
    return "vpod", key
