"""``vreplica plan``: what one round of placing would do to the objects in some files. Reads no cluster, writes nothing.

The decisions are those of the service: the same ``State``, ``place``, ``plan_scale`` and ``plan_moves``. Vpods are
taken in order of namespace and name; each decision is reserved before the next one is made.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console
from rich.table import Table

from extender.core.errors import InvalidObject
from extender.core.manifests import Manifests
from extender.core.model import VPod, split_key
from extender.core.moves import Move
from extender.core.plan import Decision, place
from extender.core.policy.profile import Profile
from extender.core.policy.profiles import BUILT_IN_PROFILES
from extender.core.rebalance.plan import Limits, plan_moves
from extender.core.scaling.scale_down import ordinals_to_close
from extender.core.scaling.size import plan_scale
from extender.core.state import State

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
DEPTH_MAX: Final = 200
"""Levels of nesting in a file; a Kubernetes object needs about twenty."""

Row = dict[str, object]


def run_plan(
    files: Sequence[str],
    *,
    output: str,
    autoscale: bool,
    compact: bool,
    profile: str = "",
    profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
) -> int:
    """Read the files, plan, print. ``profile``: place every pool by this one, "" for its own. Raises InvalidObject."""
    manifests = Manifests()
    for name in files:
        for document in _documents(name):
            manifests.add(document, "standard input" if name == "-" else name)
    if manifests.skipped:
        print(f"vreplica plan: skipped {', '.join(manifests.skipped[:10])}"[:500], file=sys.stderr)
    _choose_profiles(manifests, profile, profiles)
    result = plan(manifests, autoscale=autoscale, compact=compact, profiles=profiles)
    if output == "json":
        print(json.dumps(result))
    else:
        _print_tables(result)
    return 0


def _choose_profiles(manifests: Manifests, profile: str, profiles: Mapping[str, Profile]) -> None:
    if profile:
        manifests.pools[:] = [replace(pool, profile=profile) for pool in manifests.pools]
    for pool in manifests.pools:
        if pool.profile not in profiles:
            known = ", ".join(sorted(profiles))
            raise InvalidObject(
                f"AdapterPool {pool.key}", "spec.profile", f"{pool.profile!r} is not known (known: {known})"
            )


def plan(
    manifests: Manifests,
    *,
    autoscale: bool,
    compact: bool,
    profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
) -> dict[str, list[Row]]:
    """One round over everything that was read: ``{"vpods": [...], "pools": [...]}``."""
    state = manifests.state(profiles)
    vpods = sorted(manifests.vpods, key=lambda vpod: (vpod.namespace, vpod.name))
    rows = [_vpod_row(vpod, _decide(state, vpod)) for vpod in vpods]
    keys = sorted(pool.key for pool in manifests.pools)
    return {
        "vpods": rows,
        "pools": [_pool_row(state, key, autoscale=autoscale, compact=compact) for key in keys],
    }


def _decide(state: State, vpod: VPod) -> Decision:
    pool = state.pool(vpod.pool)
    allowed = pool.pool is None or state.allows(pool.pool, vpod.namespace)
    decision = place(pool, vpod, allowed=allowed)
    shares = decision.shares(pool.placed_of(vpod.key))
    pool.reserve("plan", vpod.key, shares, expires_at=float("inf"))
    return decision


def _vpod_row(vpod: VPod, decision: Decision) -> Row:
    explanation = decision.explanation
    reasons = [str(explanation.reason)] if explanation.reason is not None else []
    return {
        "namespace": vpod.namespace,
        "name": vpod.name,
        "placements": [{"podName": name, "vreplicas": count} for name, count in decision.target.items()],
        "unplaced": decision.left,
        "reasons": [*reasons, *filter(None, [explanation.detail])]
        + [f"{count} {text}" for text, count in explanation.refused],
    }


def _pool_row(state: State, key: str, *, autoscale: bool, compact: bool) -> Row:
    def allows(vpod: VPod) -> bool:
        return state.selects(key, vpod)

    namespace, name = split_key(key)
    pool = state.pool(key)
    replicas = pool.stateful_set.replicas if pool.stateful_set is not None else 0
    scale = plan_scale(pool, allows)
    budget = pool.pool.moves_per_period if pool.pool is not None else 0
    surplus = ordinals_to_close(pool, scale, allows) if scale is not None else 0
    limits = Limits(budget=budget, emptying=surplus)
    moves = plan_moves(pool, limits) if compact else []
    return {
        "namespace": namespace,
        "name": name,
        "replicas": replicas,
        "wantedReplicas": scale.wanted if autoscale and scale is not None else replicas,
        "freeSlots": pool.free_slots(),
        "evictions": _evictions(moves),
    }


def _evictions(moves: Sequence[Move]) -> list[Row]:
    """What leaves each pod, wherever to: with two destinations still one row."""
    counts: dict[tuple[str, str, str], int] = {}
    for move in moves:
        what = (move.vpod, move.from_pod, str(move.reason))
        counts[what] = counts.get(what, 0) + move.vreplicas
    return [
        {"vpod": vpod, "podName": pod_name, "vreplicas": count, "reason": reason}
        for (vpod, pod_name, reason), count in counts.items()
    ]


def _documents(name: str) -> list[object]:
    """All documents of a file, YAML or JSON (which is YAML)."""
    try:
        raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if name == "-" else _read(name)
    except OSError as error:
        raise InvalidObject(name, "", f"cannot be read: {error.strerror}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidObject(name, "", f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        if raw.lstrip()[:1] == b"{":
            return [json.loads(raw)]
    except (ValueError, RecursionError):
        pass  # several JSON documents, YAML in flow style, or nested so deep that it is refused below
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(raw, loader, name)
        return list(yaml.load_all(raw, Loader=loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The parser tells on several lines where it stopped.
        problem = " ".join(str(error).split())[:300]
        raise InvalidObject(name, "", f"is neither YAML nor JSON: {problem}") from error


def _refuse_depth(raw: bytes, loader: type[yaml.SafeLoader], name: str) -> None:
    """The C loader builds nested values by recursion, without a limit: too deep, it takes the process with it."""
    depth = 0
    for event in yaml.parse(raw, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidObject(name, "", f"is nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _read(name: str) -> bytes:
    with Path(name).open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def _print_tables(result: dict[str, list[Row]]) -> None:
    console = Console()
    vpods = Table("VPOD", "PLACEMENTS", "UNPLACED", "REASONS", title="vpods", title_justify="left")
    for row in result["vpods"]:
        vpods.add_row(
            f"{row['namespace']}/{row['name']}",
            _placements(row["placements"]),
            str(row["unplaced"]),
            "; ".join(_texts(row["reasons"])),
        )
    pools = Table(
        "POOL", "REPLICAS", "WANTED", "FREE SLOTS", "EVICTIONS", title="pools", title_justify="left"
    )
    for row in result["pools"]:
        moves = [
            f"{m['vreplicas']} of {m['vpod']} off {m['podName']} ({m['reason']})"
            for m in _rows(row["evictions"])
        ]
        name = f"{row['namespace']}/{row['name']}"
        pools.add_row(
            name, str(row["replicas"]), str(row["wantedReplicas"]), str(row["freeSlots"]), "\n".join(moves)
        )
    console.print(vpods)
    console.print(pools)


def _placements(value: object) -> str:
    return " ".join(f"{item['podName']}={item['vreplicas']}" for item in _rows(value))


def _rows(value: object) -> list[Row]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
