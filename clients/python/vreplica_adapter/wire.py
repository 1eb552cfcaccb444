"""The JSON documents between an adapter and vreplica-scheduler, and nothing else that is JSON.

==================  ==============================================================================
``Assignment``      what the pod is told: a line of ``GET /v1/assignment?watch=true``, and the
                    annotation ``vreplica.dev/assignment`` that the downward API writes to a file
``Acknowledgement`` what the pod says: the body of ``POST /v1/acknowledge``
``Placements``      where a vpod is served: a line of ``GET /v1/placements/NAMESPACE/NAME``
==================  ==============================================================================

Reading is strict about what it knows and blind to what it does not: an unknown field is ignored, so
that a newer service can add one. A field of a wrong type or out of its range raises ``WireError``,
which names the field. A document is read as a whole or not at all: half an assignment is none.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from vreplica_adapter.fields import Fields, WireError, parsed, write_indexes

KEY_CHARS_MAX: Final = 63 + 1 + 253 + 1 + 63 + 1 + 253
"""Namespace, name, and kind and group of a foreign kind, as long as Kubernetes takes them."""
_KEY: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.@]*/[A-Za-z0-9][-A-Za-z0-9.@]*")
"""A vpod's, or ``namespace/name@kind.group`` of an object of another kind. It is safe in a path."""


class State(StrEnum):
    """What the pod is to do about a share."""

    PREPARE = "Prepare"
    """Get ready. Do not serve."""
    SERVE = "Serve"
    DRAIN = "Drain"
    """Finish, and let go by the deadline. A peer serves, or will."""


class Intent(StrEnum):
    """Why a share is drained: for good, or to come back. A newer service may say another one, so
    ``Share.intent`` is a string.
    """

    SCALE = "Scale"
    REBALANCE = "Rebalance"
    DRAIN = "Drain"
    ROLLOUT = "Rollout"
    MAINTENANCE = "Maintenance"
    EVICTED = "Evicted"
    REMOVED = "Removed"


@dataclass(frozen=True, slots=True)
class ShareDocument:
    """What an assignment says about one vpod."""

    state: State
    vreplicas: int
    """Of this vpod, here."""
    weight: int = 1
    """Slots of a vreplica."""
    of: int = 0
    """All vreplicas of the vpod; 0 if it is not said."""
    indexes: tuple[int, ...] | None = None
    """Which of 0 … of-1 are here, ascending. None in a pool whose vreplicas are alike."""
    epoch: int = 0
    """Grows whenever who may serve changes. It fences writes to outside systems."""
    peer: str = ""
    """The pod that serves a drained share, or will."""
    deadline: datetime | None = None
    """Until when a drained share is let go, in UTC."""
    intent: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a pod is told, as of ``generation``."""

    generation: int
    uid: str
    """Of the pod. An acknowledgement repeats it."""
    pod: str = ""
    """``namespace/name``."""
    shares: Mapping[str, ShareDocument] = field(default_factory=lambda: MappingProxyType({}))
    """By the vpod's ``namespace/name``."""
    lease_s: float | None = None
    """Field ``leaseSeconds``: how long after its last acknowledgement the pod may serve, in a pool
    with ``handoff.mode: Exclusive``. None in other pools.
    """


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What a pod has made of the assignment of ``generation``. Keys are those of its shares.

    A share that was told ``Prepare`` is ready once it is not ``busy``.
    """

    uid: str
    generation: int
    serving: tuple[str, ...] = ()
    draining: tuple[str, ...] = ()
    """Told to let go, or letting go by themselves, and not done."""
    drained: tuple[str, ...] = ()
    """Let go: nothing is done for them any more."""
    busy: tuple[str, ...] = ()
    """Told ``Prepare`` or ``Serve``, and not there yet. A share that grows while it is served is
    ``serving`` and ``busy``.
    """


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod that serves a vpod."""

    pod: str
    """``namespace/name``."""
    vreplicas: int
    indexes: tuple[int, ...] | None = None
    """Which vreplicas are there, in a pool with ``identity: Indexed``."""


@dataclass(frozen=True, slots=True)
class Placements:
    """The pods of one vpod, as of ``generation``."""

    generation: int
    pods: tuple[PlacedPod, ...] = ()


def read_assignment(document: bytes) -> Assignment:
    """Read an Assignment. Raises WireError."""
    top = Fields(parsed(document))
    shares = {
        key: _read_share(Fields(value, f"shares[{_quoted(key)}]"))
        for key, value in top.mapping("shares").items()
        if checked_key(key)
    }
    lease_s = top.number("leaseSeconds") if top.has("leaseSeconds") else None
    if lease_s is not None and lease_s <= 0:
        top.fail("leaseSeconds", "must be greater than 0")
    return Assignment(
        generation=top.integer("generation"),
        uid=top.text("uid"),
        pod=top.text("pod", ""),
        shares=MappingProxyType(shares),
        lease_s=lease_s,
    )


def write_assignment(assignment: Assignment) -> bytes:
    """Write an Assignment as the service does, on one line."""
    document: dict[str, object] = {
        "generation": assignment.generation,
        "pod": assignment.pod,
        "uid": assignment.uid,
        "shares": {key: _share_fields(share) for key, share in assignment.shares.items()},
    }
    if assignment.lease_s is not None:
        document["leaseSeconds"] = assignment.lease_s
    return _written(document)


def read_acknowledgement(document: bytes) -> tuple[Acknowledgement, dict[str, float]]:
    """Read an Acknowledgement and the load with it. Raises WireError."""
    top = Fields(parsed(document))
    said = Acknowledgement(
        uid=top.text("uid"),
        generation=top.integer("generation"),
        serving=top.texts("serving"),
        draining=top.texts("draining"),
        drained=top.texts("drained"),
        busy=top.texts("busy"),
    )
    load = Fields(dict(top.mapping("load")), "load")
    return said, {key: load.number(key) for key in top.mapping("load")}


def read_placements(document: bytes) -> Placements:
    """Read Placements. Raises WireError."""
    top = Fields(parsed(document))
    pods = tuple(
        _read_placed_pod(Fields(value, f"placements[{at}]"))
        for at, value in enumerate(top.sequence("placements"))
    )
    return Placements(top.integer("generation"), pods)


class AnswerDocument(NamedTuple):
    """The answer to an acknowledgement, or to one that is out of date. ``generation``: the one that
    the service has; None if it does not say.
    """

    generation: int | None = None
    ignores_load: bool = False
    """Whether the replica does not keep the load. Only the pool's leader does."""


def read_answer(document: bytes) -> AnswerDocument:
    """Read an answer. Raises WireError."""
    if not document.strip():
        return AnswerDocument()
    top = Fields(parsed(document))
    generation = top.integer("generation") if top.has("generation") else None
    load = top.text("load") if top.has("load") else ""
    return AnswerDocument(generation, load.startswith("ignored"))


def write_acknowledgement(said: Acknowledgement, load: Mapping[str, float]) -> bytes:
    """Write the body of ``POST /v1/acknowledge``; ``load`` has finite numbers by share."""
    return _written(
        {
            "uid": said.uid,
            "generation": said.generation,
            "serving": said.serving,
            "draining": said.draining,
            "drained": said.drained,
            "busy": said.busy,
            "load": dict(load),
        }
    )


def write_placements(placements: Placements) -> bytes:
    """Write Placements as the service does, on one line."""
    return _written(
        {
            "generation": placements.generation,
            "placements": [
                {
                    "pod": pod.pod,
                    "vreplicas": pod.vreplicas,
                    **_indexes_field(pod.indexes),
                }
                for pod in placements.pods
            ],
        }
    )


def _read_share(share: Fields) -> ShareDocument:
    vreplicas, of = share.integer("vreplicas"), share.integer("of", 0)
    return ShareDocument(
        state=State(share.choice("state", State)),
        vreplicas=vreplicas,
        weight=share.integer("weight", 1),
        of=of,
        indexes=share.indexes("indexes", vreplicas, of),
        epoch=share.integer("epoch", 0),
        peer=share.text("peer", ""),
        deadline=share.instant("deadline"),
        intent=share.text("intent", ""),
    )


def _read_placed_pod(pod: Fields) -> PlacedPod:
    vreplicas = pod.integer("vreplicas")
    return PlacedPod(
        pod=pod.text("pod"),
        vreplicas=vreplicas,
        indexes=pod.indexes("indexes", vreplicas, 0),
    )


def _share_fields(share: ShareDocument) -> dict[str, object]:
    fields: dict[str, object] = {
        "vreplicas": share.vreplicas,
        "weight": share.weight,
        "of": share.of,
        **_indexes_field(share.indexes),
        "epoch": share.epoch,
        "state": share.state,
    }
    if share.deadline is not None:
        fields["deadline"] = share.deadline.isoformat()
    optional = {"peer": share.peer, "intent": share.intent}
    return fields | {name: value for name, value in optional.items() if value}


def _indexes_field(indexes: tuple[int, ...] | None) -> dict[str, object]:
    return {} if indexes is None else {"indexes": write_indexes(indexes)}


def _written(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _quoted(key: str) -> str:
    return f'"{key}"' if len(key) <= KEY_CHARS_MAX and key.isprintable() else "a long key"


def is_key(value: object) -> bool:
    """Whether it is a vpod's ``namespace/name``."""
    if not isinstance(value, str) or len(value) > KEY_CHARS_MAX:
        return False
    return _KEY.fullmatch(value) is not None


def checked_key(key: str) -> str:
    """Return a vpod's ``namespace/name``. Raises WireError if it is none."""
    if not is_key(key):
        raise WireError(f"{_quoted(key)} is not a vpod's namespace/name")
    return key
