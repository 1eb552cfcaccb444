"""The object that ``explain`` is about: ``ns/name``, or ``name`` with or without ``-n``, each
perhaps after ``vpod/`` or ``pod/``. A foreign object's kind (``@KIND.GROUP``) may be left out where
only one object has the name.
"""

from dataclasses import dataclass
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.model.errors import InvalidObject
from extender.whatif.explanation import UnknownObject, pool_of_vpod, vpod_key
from extender.whatif.fix import listed
from extender.whatif.pod_explanation import find_pod

KINDS: Final = {"vpod": "vpod", "vpods": "vpod", "pod": "pod", "pods": "pod"}
CHOICES_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """``kind``: vpod, pod, or "" for either. ``namespace``: "" for any."""

    kind: str
    namespace: str
    name: str


def subject_from(text: str, namespace: str) -> Subject:
    """Read an argument as kubectl would: ``KIND/NAME`` if the first part is a kind, else
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


def resolve(state: ClusterState, subject: Subject) -> tuple[str, str]:
    """Find the kind and the key of the object. Raises UnknownObject, also for a bare name with
    several meanings.
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
        choices = ", ".join(f"{kind}/{key}" for kind, key in found[:CHOICES_LISTED])
        raise UnknownObject(
            f"{subject.name} could be {choices}: say which, by its namespace or kind"
        )
    vpods = sorted(key for pool in state.pools.values() for key in pool.vpods)
    what = {"vpod": "vpod", "pod": "adapter pod"}.get(subject.kind, "vpod or adapter pod")
    raise UnknownObject(f"no {what} is named {subject.name}; the vpods are {listed(vpods)}")


def _named(key: str, name: str) -> bool:
    """Whether the key has the name; the kind at the end of a foreign object's key may be left
    out.
    """
    own = key.rpartition("/")[2]
    return name in {own, own.partition("@")[0]}


def _by_key(state: ClusterState, kind: str, key: str) -> tuple[str, str]:
    if kind == "pod":
        find_pod(state, key)
        return "pod", key
    whole = vpod_key(state, key)
    try:
        pool_of_vpod(state, whole)
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
    return "vpod", whole
