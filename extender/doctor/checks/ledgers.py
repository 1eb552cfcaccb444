"""Ledgers beside statuses (DESIGN 3): what is published is in a ledger (I2), and once writes settle both say the same (I3).

Both are read at different moments, while the service writes. So they are read twice, and only what differs both times in
the same way is told. Shares of foreign kinds and of callers (``ns/name@kind.group``) have their status elsewhere: they
count as slots, and nothing is said of them here.
"""

from collections.abc import Mapping
from typing import Final

from extender.core.counted import counted
from extender.core.decode import pod_from, stateful_set_from, vpod_from
from extender.core.errors import InvalidObject
from extender.core.model import AdapterPod, VPod, ordinal_of
from extender.doctor.facts import Facts, Listed
from extender.doctor.verdict import Check, Notes, Outcome


def _vpods(listed: Listed, problems: list[str] | None = None) -> dict[str, VPod]:
    found = {}
    for raw in listed.items:
        try:
            vpod = vpod_from(raw)
        except InvalidObject as error:
            if problems is not None:
                problems.append(str(error)[:200])
            continue
        found[vpod.key] = vpod
    return found


def _pods(listed: Listed) -> dict[str, AdapterPod]:
    return {pod.key: pod for raw in listed.items if not (pod := pod_from(raw)).finished}


def drift_of(pods: Mapping[str, AdapterPod], vpods: Mapping[str, VPod]) -> tuple[set[str], set[str]]:
    """What is published and in no ledger (I2 is broken), and what a ledger has that is not published (I3 is to come)."""
    uncovered, leftover = set(), set()
    for vpod in vpods.values():
        namespace = vpod.pool.partition("/")[0]
        for name, published in vpod.placements.items():
            pod = pods.get(f"{namespace}/{name}")
            if pod is None or not pod.node or pod.ledger_error:
                continue  # a pod that is away gets its ledger back as it binds
            share = pod.ledger.get(vpod.key)
            has = share.vreplicas if share is not None else 0
            if has < published:
                uncovered.add(
                    f"VPod {vpod.key} publishes {published} on {name}, the ledger of {pod.key} has {has}"
                )
    for pod in pods.values():
        for key, share in pod.ledger.items():
            if "@" in key or not pod.node:
                continue
            owner = vpods.get(key)
            published = (
                owner.placements.get(pod.name, 0) if owner is not None and owner.pool == pod.pool else 0
            )
            if published < share.vreplicas:
                who = f"VPod {key} publishes {published}" if owner is not None else f"there is no VPod {key}"
                leftover.add(f"the ledger of {pod.key} has {share.vreplicas} of {key}, {who}")
    return uncovered, leftover


def differ(pods: Listed, vpods: Listed) -> bool:
    """Whether anything differs, as they were read."""
    return any(drift_of(_pods(pods), _vpods(vpods)))


def _drift(facts: Facts) -> Outcome:
    notes = Notes()
    vpods = _vpods(facts.of("vpods"), notes.unknown)
    uncovered, leftover = drift_of(_pods(facts.of("pods")), vpods)
    again = facts.again.get("pods"), facts.again.get("vpods")
    if again[0] is not None and again[1] is not None:
        second = drift_of(_pods(again[0]), _vpods(again[1]))
        uncovered, leftover = uncovered & second[0], leftover & second[1]
    notes.errors += sorted(uncovered)
    notes.warnings += sorted(leftover)
    return notes.outcome(
        f"ledgers and statuses of {counted(len(vpods), 'vpod')} say the same",
        nothing="" if facts.of("pods").items or facts.of("vpods").items else "no vpods and no adapter pods",
        bad=f"ledgers and statuses differ in {counted(len(uncovered) + len(leftover), 'place')}",
        fix="The leader's reconciler repairs this each minute: look whether somebody leads, and at the metric repairs. "
        "What stays was written by hand, or by another program.",
    )


def _gone(facts: Facts) -> Outcome:
    """Placements on ordinals that the StatefulSet no longer has, or never had."""
    notes, sizes = Notes(), _ordinals(facts)
    pods = _pods(facts.of("pods"))
    for vpod in _vpods(facts.of("vpods")).values():
        stateful_set, ordinals = sizes.get(vpod.pool, ("", None))
        if ordinals is None:
            continue
        namespace = vpod.pool.partition("/")[0]
        for name, published in vpod.placements.items():
            ordinal = ordinal_of(name)
            known = ordinal is not None and name == f"{stateful_set}-{ordinal}" and ordinal in ordinals
            if published and not known and f"{namespace}/{name}" not in pods:
                notes.errors.append(
                    f"VPod {vpod.key} publishes {published} on {name}, which {stateful_set} does not have"
                )
    return notes.outcome(
        "every placement is on a pod that its StatefulSet has",
        nothing="" if facts.of("vpods").items else "no vpods",
        bad=f"{counted(len(notes.errors), 'placement')} on pods that are gone",
        fix="Somebody has scaled the StatefulSet down by hand: the leader places them anew as soon as there is room.",
    )


def _ordinals(facts: Facts) -> dict[str, tuple[str, range | None]]:
    """Pool -> name and ordinals of its StatefulSet, None where that cannot be said."""
    sets = {}
    for raw in facts.of("statefulsets").items:
        try:
            one = stateful_set_from(raw)
        except InvalidObject:
            continue
        sets[one.key] = one
    found: dict[str, tuple[str, range | None]] = {}
    for raw in facts.of("adapterpools").items:
        metadata, spec = raw.get("metadata"), raw.get("spec")
        if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            continue
        name = str(spec.get("statefulSet"))
        stateful_set = sets.get(f"{metadata.get('namespace')}/{name}")
        ordinals = stateful_set.ordinals if stateful_set is not None else None
        found[f"{metadata.get('namespace')}/{metadata.get('name')}"] = (name, ordinals)
    return found


LEDGERS: Final = (
    Check("ledger-drift", "Do ledgers and statuses say the same (I2, I3)?", ("pods", "vpods"), _drift),
    Check(
        "placements-gone",
        "Is anything placed on pods that are gone?",
        ("pods", "vpods", "adapterpools", "statefulsets"),
        _gone,
    ),
)
