"""Fault profiles: which faults a run has, and how often.

Without a profile a seed draws them (``draws``). A profile is a YAML document with any of these::

    faults: {watchDropped: 0.02, killReplica: 0.01}  # probabilities of these kinds
    others: drawn                 # or none, or all: the kinds that are not named
    delayMeanS: 0.01              # seconds, one way through the network
    slowMaxS: 6                   # the most seconds that something slow takes
    pools: {profile: spread}      # spec fields that every pool begins with
    buckets: 3                    # buckets of pools; a quarter of the replicas has another number
    parts: [callers, sources]     # the PARTS of the world; if missing, as others says

``vreplica simulate --faults`` lists every kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args

from extender.config.model import BUCKETS_MAX
from extender.lab.faults import KINDS, FaultKind
from extender.model.errors import VReplicaError

ACT_KINDS: Final = tuple(
    FaultKind(name, "workload event", most, what)
    for name, most, what in (
        ("killReplica", 0.01, "a replica is killed (SIGKILL)"),
        (
            "stopReplica",
            0.01,
            "the leader is told to end (SIGTERM): it releases its lease, and another leads at once",
        ),
        (
            "killAtCall",
            0.02,
            "a replica is killed in one of its next calls, before or after it is served",
        ),
        ("startReplica", 0.02, "one more replica is started"),
        (
            "pauseReplica",
            0.01,
            "a replica is stopped (SIGSTOP) for up to 40 s, longer than the lease lasts",
        ),
        (
            "stealLease",
            0.006,
            "the Lease is given to another replica by hand, while the leader leads",
        ),
        (
            "leaseThereAndBack",
            0.006,
            "the Lease is given to another replica, and back to the first",
        ),
        ("clockJump", 0.01, "a replica's wall clock jumps by up to an hour"),
        ("schedulerRestart", 0.006, "kube-scheduler is restarted: it forgets what it has assumed"),
        ("apiServerOutage", 0.003, "no replica reaches the API server for seconds"),
        ("historyCompacted", 0.01, "all watches get 410"),
        ("nodeFails", 0.01, "a node is lost with all pods on it"),
        ("zoneFails", 0.006, "all nodes of a zone are lost"),
        (
            "nodesRecover",
            0.03,
            "what nodeFails and zoneFails took comes back; alone it does nothing",
        ),
        ("podForceDeleted", 0.03, "a pod is deleted at once: its name comes back with a new UID"),
        ("podsForceDeleted", 0.004, "all pods are deleted at once"),
        ("replicasEdited", 0.01, "somebody else scales the StatefulSet"),
        ("ledgerEdited", 0.015, "a person changes a ledger: less, more, garbage, gone"),
        ("statusEdited", 0.015, "a person changes the placements of a vpod"),
        ("boundElsewhere", 0.03, "another scheduler binds one of our pods"),
        ("leaseDeleted", 0.006, "the Lease is deleted by hand, while the leader leads"),
        (
            "rivalLeader",
            0.004,
            "for up to 30 s a replica with a Lease of its own leads beside the leader: I1 holds, "
            "the rest once it has gone",
        ),
        ("leaseEmptied", 0.004, "a person takes the holder out of the Lease, while it leads"),
        (
            "leaseReapplied",
            0.004,
            "the Lease is deleted, and applied again as it is installed, while the leader leads",
        ),
        (
            "nodeClockJump",
            0.02,
            "a node's clock jumps by up to an hour: its kubelet writes such times",
        ),
        ("probeFails", 0.03, "a pod's readiness probe fails for up to 60 s"),
        (
            "secondPool",
            0.02,
            "a second AdapterPool names a pool's StatefulSet, or goes again; or the first goes "
            "beside it, for up to 20 s",
        ),
        (
            "eventsRefused",
            0.03,
            "events of one namespace, or of all, are refused (403 or 500) for up to 60 s: those of "
            "others are written",
        ),
        (
            "ordinalsMoved",
            0.02,
            "`spec.ordinals.start` of a StatefulSet changes, there or back; its pods take up to 20 "
            "s to end",
        ),
        (
            "podNotReady",
            0.03,
            "a pod on a node that is fine is not Ready, for up to 300 s or until another has its "
            "name",
        ),
        (
            "podRefused",
            0.03,
            "a pod is deleted at once, and a kubelet refuses the next one of its name, which "
            "becomes Failed",
        ),
        (
            "nodeTainted",
            0.03,
            "a node gets a NoSchedule taint, for up to 120 s: its pods stay, unless their pool "
            "evicts them (the part descheduling)",
        ),
        (
            "etcdRestored",
            0.01,
            "etcd goes back to a backup seconds old, and versions with it or not: what was written "
            "since has never been",
        ),
    )
)
PARTS: Final = {
    "callers": "controllers that ask POST /v1/schedule and keep their placements themselves",
    "sources": "objects of a foreign kind, whose status the service writes",
    "selectors": "pools for some namespaces only, whose labels change",
    "narrowing": "filter.narrowTo: few nodes pass filter",
    "longNames": "vpods with names of 253 characters, by the hundreds: ledgers have no bytes left "
    "while slots are free",
    "descheduling": "pools that evict pods from nodes that they should have left",
    "load": "pools that balance the load that adapters report, with noise and odd reports",
    "handoff": "pools whose adapters are told their shares",
    "takeTurns": "kube-scheduler's equal nodes take turns, as up to 1.15",
    "dimensions": "pools with capacities beside slots, and vpods that take some of them",
    "loadSource": "pools that take their load from a Prometheus",
    "ownProfiles": "profiles of the configuration, by LeastLoad and LeastAllocated",
    "tenancy": "pools that limit tenants and share their slots among them, and VReplicaQuotas",
    "priorities": "pools in which vpods of a higher priority take slots from others",
    "gangs": "vpods that need several vreplicas together",
    "placement": "vpods that limit how many of their vreplicas a pod gets",
    "crashes": "containers that crash, and pools that put the vpods before that into quarantine",
}
"""What a world may have besides vpods, nodes and pools: name -> description."""
PARTS_LAST: Final = (
    *("longNames", "takeTurns", "descheduling", "load", "dimensions", "handoff"),
    *("loadSource", "ownProfiles", "tenancy", "priorities", "gangs", "placement"),
    "crashes",
)
"""Parts with their own dice, so that they do not change the draws of seeds without them."""
OF_PARTS: Final = {
    "callers": frozenset({"scheduleAnswerLost", "scheduleRepeated", "scheduleElsewhere"}),
    "loadSource": frozenset({"loadQueryFails", "loadQueryEmpty", "loadQueryHangs"}),
}
"""Part -> its faults, which are drawn if the part exists."""
DRAWN_LAST: Final = frozenset(
    {
        "leaseDeleted",
        "rivalLeader",
        "leaseEmptied",
        "leaseReapplied",
        "nodeClockJump",
        "probeFails",
        "secondPool",
        "eventsRefused",
        "ordinalsMoved",
        "podNotReady",
        "etcdRestored",
        "podRefused",
        "nodeTainted",
    }
)
"""Kinds that are drawn after all others, so that they do not change the other draws of a seed."""
ALL_KINDS: Final = (*KINDS, *ACT_KINDS)
_BY_NAME: Final = {kind.name: kind for kind in ALL_KINDS}
Others = Literal["drawn", "none", "all"]
"""drawn: each seed draws which kinds it has and how often (swarm testing). none: there are none.
all: there are all.
"""
ALL_SHARE: Final = 0.3
"""The share of its highest probability that each kind has if there are all of them. With more, the
service would never get anything done.
"""
NOT_WITH_OTHERS: Final = frozenset({"rivalLeader"})
"""Kinds that ``others: all`` leaves out. While two replicas lead by configuration, only I1 is
checked, so other findings would be missed.
"""
_DELAYS: Final = ("delayMeanS", "slowMaxS")
_KEYS: Final = ("faults", "others", "pools", "buckets", "parts", *_DELAYS)


class ProfileError(VReplicaError):
    """A fault profile cannot be read, or names something unknown."""


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """A parsed profile. ``rates`` by kind and ``delays`` by name replace what is drawn. ``others``
    says what happens to the rest.

    ``pools``: spec fields that every pool begins with, whatever is drawn for it.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    others: Others = "drawn"
    pools: Mapping[str, Any] = field(default_factory=dict)
    buckets: int = 1
    parts: frozenset[str] | None = None
    """None: as ``others`` says."""
    file: str = field(default="", compare=False)
    """The file that it was read from."""

    def parts_of(self, drawn: frozenset[str]) -> frozenset[str]:
        """Return the parts of a world, given those that the seed has drawn."""
        if self.parts is not None:
            return self.parts
        return {"drawn": drawn, "none": frozenset[str](), "all": frozenset(PARTS)}[self.others]

    def rates_of(self, drawn: Mapping[str, float]) -> dict[str, float]:
        """Return the rate of every kind, given those that the seed has drawn."""
        if self.others == "drawn":
            others = dict(drawn)
        else:
            share = ALL_SHARE if self.others == "all" else 0.0
            others = {
                kind.name: kind.most * share
                for kind in ALL_KINDS
                if kind.name not in NOT_WITH_OTHERS
            }
        return {
            kind.name: self.rates.get(kind.name, others.get(kind.name, 0.0)) for kind in ALL_KINDS
        }


DRAWN: Final = FaultProfile()


def profile_from(document: Any) -> FaultProfile:
    """Parse a profile. Raises ProfileError, which names the field."""
    if not isinstance(document, dict):
        raise ProfileError(
            "a fault profile is a mapping with faults, others, pools, buckets, parts, delayMeanS "
            "and slowMaxS"
        )
    for key in document:
        if key not in _KEYS:
            raise ProfileError(f"unknown field {key!r}{_nearest(str(key), _KEYS)}")
    others = document.get("others", "drawn")
    if others not in get_args(Others):
        raise ProfileError(f"others: {others!r} is neither of {', '.join(get_args(Others))}")
    faults = _faults(document.get("faults") or {})
    pools = document.get("pools") or {}
    if not isinstance(pools, dict):
        raise ProfileError("pools: not a mapping of fields of an AdapterPool's spec")
    return FaultProfile(
        faults,
        {name: _number(name, document[name], most=60.0) for name in _DELAYS if name in document},
        others,
        pools,
        int(_number("buckets", document.get("buckets", 1), most=float(BUCKETS_MAX))) or 1,
        _parts(document.get("parts")),
    )


def _faults(rates: Any) -> dict[str, float]:
    if not isinstance(rates, dict):
        raise ProfileError("faults: not a mapping of kinds to probabilities")
    for name in rates:
        if name not in _BY_NAME:
            raise ProfileError(f"faults: there is no kind {name!r}{_nearest(str(name), _BY_NAME)}")
    return {name: _number(f"faults.{name}", rate, most=1.0) for name, rate in rates.items()}


def _parts(names: Any) -> frozenset[str] | None:
    if names is None:
        return None
    if not isinstance(names, list):
        raise ProfileError(f"parts: not a list of {', '.join(PARTS)}")
    for name in names:
        if name not in PARTS:
            raise ProfileError(f"parts: there is no {name!r}{_nearest(str(name), PARTS)}")
    return frozenset(names)


def _number(where: str, value: Any, *, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
        raise ProfileError(f"{where}: {value!r} is not a number between 0 and {most:g}")
    return float(value)


def _nearest(name: str, names: Any) -> str:
    close = get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]}?" if close else ""
