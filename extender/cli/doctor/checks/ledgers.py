"""Compares ledgers with statuses (DESIGN 3). What is published is in a ledger (I2), and once writes
settle both say the same (I3).

Ledgers and statuses are read at different moments, while the service writes. So they are read
twice, and only differences that are the same both times are reported. Vpods of other kinds and of
callers (``ns/name@kind.group``) have their status elsewhere. Their shares count as slots, but are
not compared. What is handed over is no difference (``handovers``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from extender.cli.doctor.checks.facts import Facts, Listed
from extender.cli.doctor.checks.handovers import is_handed_over
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.counted import counted
from extender.model.decode import stateful_set_from
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPod, VPod, object_key, ordinal_of
from extender.model.reading import key_of, text


def _pods(listed: Listed) -> dict[str, AdapterPod]:
    return {pod.key: pod for pod in listed.pods() if not pod.finished}


def drift_of(
    pods: Listed, vpods: Listed, now_s: float, problems: list[str] | None = None
) -> tuple[set[str], set[str]]:
    """Return what is published but in no ledger (I2 is broken), and what is in a ledger but not
    published (I3 does not hold yet). ``problems`` gets what is wrong with vpods.
    """
    by_key = _pods(pods)
    known = {vpod.key: vpod for vpod in vpods.vpods(problems)}
    leftover = _leftover(by_key, known, now_s, all_read=not vpods.truncated)
    return set(_uncovered(by_key, known)), set(leftover)


def _uncovered(pods: Mapping[str, AdapterPod], vpods: Mapping[str, VPod]) -> Iterator[str]:
    for vpod in vpods.values():
        namespace = vpod.pool.partition("/")[0]
        for name, published in vpod.placements.items():
            pod = pods.get(f"{namespace}/{name}")
            if pod is None or not pod.node or pod.ledger_error:
                continue  # a pod that is away gets its ledger back at its bind
            share = pod.ledger.get(vpod.key)
            has = share.vreplicas if share is not None else 0
            if has < published:
                yield (
                    f"VPod {vpod.key} publishes {published} on {name}, the ledger of {pod.key} has "
                    f"{has}"
                )


def _leftover(
    pods: Mapping[str, AdapterPod], vpods: Mapping[str, VPod], now_s: float, *, all_read: bool
) -> Iterator[str]:
    for pod in pods.values():
        for key, share in pod.ledger.items():
            vpod = vpods.get(key)
            if "@" in key or not pod.node or (vpod is None and not all_read):
                continue
            placements = vpod.placements if vpod is not None and vpod.pool == pod.pool else {}
            published = placements.get(pod.name, 0)
            others = (pods.get(object_key(pod.namespace, name)) for name in placements)
            if published >= share.vreplicas or is_handed_over(
                pod, key, vpod, filter(None, others), now_s
            ):
                continue
            who = (
                f"VPod {key} publishes {published}"
                if vpod is not None
                else f"there is no VPod {key}"
            )
            yield f"the ledger of {pod.key} has {share.vreplicas} of {key}, {who}"


def differ(pods: Listed, vpods: Listed, now_s: float) -> bool:
    """Whether ledgers and statuses differ in these lists."""
    return any(drift_of(pods, vpods, now_s))


def _drift(facts: Facts) -> CheckResult:
    notes, vpods = Notes(), facts.of("vpods")
    uncovered, leftover = drift_of(facts.of("pods"), vpods, facts.now_s, notes.unknown)
    if facts.again:
        second = drift_of(facts.again["pods"], facts.again["vpods"], facts.now_s)
        uncovered, leftover = uncovered & second[0], leftover & second[1]
    read = len(vpods.items) - len(notes.unknown)
    notes.unknown += facts.cut("pods", "vpods")
    notes.errors += sorted(uncovered)
    notes.warnings += sorted(leftover)
    different = len(uncovered) + len(leftover)
    return notes.result(
        f"ledgers and statuses of {counted(read, 'vpod')} say the same",
        nothing=facts.none_of("vpods", "pods"),
        bad=f"ledgers and statuses differ in {counted(different, 'place')}" if different else "",
        fix="The leader's reconciler repairs this each minute: look whether somebody leads, and at "
        "the metric repairs. "
        "What stays was written by hand, or by another program."
        if different
        else "See the check rights.",
    )


def _gone(facts: Facts) -> CheckResult:
    """Find placements on pods that do not exist and that no StatefulSet will create."""
    notes, homes, fixes = Notes(), _Homes(facts), dict[str, None]()
    pods = _pods(facts.of("pods"))
    for vpod in facts.of("vpods").vpods():
        namespace = vpod.pool.partition("/")[0]
        for name, published in vpod.placements.items():
            if not published or f"{namespace}/{name}" in pods:
                continue
            home = homes.of(vpod.pool)
            if home.unknown:
                notes.unknown.append(
                    f"VPod {vpod.key} publishes {published} on {name}: {home.unknown}"
                )
            elif not home.has(name):
                why = home.missing or f"which {home.name} does not have"
                notes.errors.append(f"VPod {vpod.key} publishes {published} on {name}, {why}")
                fixes[_MADE_AGAIN if home.missing else _SCALED_DOWN] = None
    return notes.result(
        "every placement is on a pod that is there, or that its StatefulSet has",
        nothing=facts.none_of("vpods"),
        bad=f"{counted(len(notes.errors), 'placement')} on pods that are gone"
        if notes.errors
        else "",
        fix=" ".join(fixes) or "See the checks rights and pools.",
    )


_SCALED_DOWN: Final = (
    "Somebody has scaled the StatefulSet down by hand: the leader places them anew as soon as "
    "there is room."
)
_MADE_AGAIN: Final = (
    "Create what is missing again: its pods come back with what they held. Or delete the vpods, or "
    "have them name another pool."
)


@dataclass(frozen=True, slots=True)
class _Home:
    """The StatefulSet of a pool. ``missing``: which object does not exist. ``unknown``: why nothing
    can be said.
    """

    name: str = ""
    ordinals: range = range(0)
    missing: str = ""
    unknown: str = ""

    def has(self, pod_name: str) -> bool:
        """Whether the StatefulSet has a pod of that name, or will have it."""
        ordinal = ordinal_of(pod_name)
        return (
            ordinal is not None
            and pod_name == f"{self.name}-{ordinal}"
            and ordinal in self.ordinals
        )


class _Homes:
    """Finds the StatefulSets of pools."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._pools = {key_of(raw): raw for raw in facts.of("adapterpools").items}
        self._sets = {key_of(raw): raw for raw in facts.of("statefulsets").items}

    def of(self, pool: str) -> _Home:
        """The StatefulSet of the pool with this key."""
        if pool not in self._pools:
            return self._absent("adapterpools", "AdapterPool", pool)
        key = object_key(pool.partition("/")[0], text(self._pools[pool], "spec", "statefulSet"))
        if key not in self._sets:
            return self._absent("statefulsets", "StatefulSet", key)
        try:
            found = stateful_set_from(self._sets[key])
        except InvalidObject as error:
            return _Home(unknown=str(error)[:200])
        return _Home(found.name, found.ordinals)

    def _absent(self, plural: str, kind: str, key: str) -> _Home:
        if self._facts.of(plural).truncated:
            return _Home(unknown=f"not all {plural} were read")
        return _Home(missing=f"and there is no {kind} {key}")


LEDGERS: Final = (
    Check(
        "ledger-drift", "Do ledgers and statuses say the same (I2, I3)?", ("pods", "vpods"), _drift
    ),
    Check(
        "placements-gone",
        "Is anything placed on pods that are gone?",
        ("pods", "vpods", "adapterpools", "statefulsets"),
        _gone,
    ),
)
