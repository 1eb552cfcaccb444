"""Checks of pools: whether each has its StatefulSet, its pods opt in, and waiting vreplicas can get
room.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.pods import is_pending, refusal_of
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.availability import why_unserved
from extender.model.counted import counted
from extender.model.decode import node_from, pool_from
from extender.model.errors import InvalidObject
from extender.model.names import POOL_LABEL
from extender.model.objects import AdapterPod, AdapterPool, Node, VPod, placement_order
from extender.model.reading import Json, key_of, mapping, sequence, text


def _read(facts: Facts, notes: Notes) -> Iterator[AdapterPool]:
    for raw in facts.of("adapterpools").items:
        try:
            yield pool_from(raw)
        except InvalidObject as error:
            notes.errors.append(str(error)[:200])


def _stateful_sets(facts: Facts) -> CheckResult:
    notes, owners = Notes(), dict[str, str]()
    sets = {key_of(raw): raw for raw in facts.of("statefulsets").items}
    for pool in _read(facts, notes):
        stateful_set = sets.get(pool.stateful_set_key)
        if stateful_set is None and facts.of("statefulsets").truncated:
            notes.unknown.append(f"AdapterPool {pool.key}: not all statefulsets were read")
            continue
        if stateful_set is None:
            notes.errors.append(
                f"AdapterPool {pool.key}: there is no StatefulSet {pool.stateful_set_key}"
            )
            continue
        if other := owners.get(pool.stateful_set_key):
            notes.errors.append(
                f"AdapterPools {other} and {pool.key} both name StatefulSet {pool.stateful_set_key}"
            )
        owners[pool.stateful_set_key] = pool.key
        label = text(stateful_set, "spec", "template", "metadata", "labels", POOL_LABEL)
        if label != pool.name:
            said = f"says {label[:100]!r}" if label else "is missing"
            notes.errors.append(
                f"StatefulSet {pool.stateful_set_key}: label {POOL_LABEL} in its pod template "
                f"{said}"
            )
    return notes.result(
        nothing=facts.none_of("adapterpools"),
        good=f"{counted(len(facts.of('adapterpools').items), 'pool')}, each with a StatefulSet "
        f"whose pods opt in",
        fix=f"Create the StatefulSet, or correct spec.statefulSet; its pod template needs the "
        f"label {POOL_LABEL}: POOL.",
    )


def _pool_labels(facts: Facts) -> CheckResult:
    notes = Notes()
    pools = {key_of(raw) for raw in facts.of("adapterpools").items}
    notes.unknown += facts.cut("adapterpools", "pods", "vpods")
    all_read = not facts.of("adapterpools").truncated
    missing: dict[str, int] = {}
    for raw in facts.of("pods").items:
        pool = f"{text(raw, 'metadata', 'namespace')}/{text(raw, 'metadata', 'labels', POOL_LABEL)}"
        if pool not in pools and all_read:
            missing[pool] = missing.get(pool, 0) + 1
    notes.errors += [
        f"{counted(number, 'pod')} of AdapterPool {pool}, which is not there"
        for pool, number in sorted(missing.items())
    ]
    for raw in facts.of("vpods").items:
        ref = mapping(raw, "spec", "poolRef")
        pool = f"{text(ref, 'namespace') or text(raw, 'metadata', 'namespace')}/{text(ref, 'name')}"
        if pool not in pools and all_read:
            notes.errors.append(
                f"VPod {key_of(raw)} asks for AdapterPool {pool}, which is not there"
            )
    return notes.result(
        "every pod and vpod names a pool that is there",
        nothing=facts.none_of("vpods", "pods"),
        fix="Create the AdapterPool, or correct the name."
        if notes.errors
        else "See the check rights.",
    )


def _profiles(facts: Facts) -> CheckResult:
    notes = Notes()
    for pool in _read(facts, notes):
        if pool.profile not in BUILT_IN_PROFILES:
            notes.unknown.append(
                f"AdapterPool {pool.key} asks for {pool.profile[:100]!r}, which is not built in"
            )
        notes.warnings += [
            f"AdapterPool {pool.key}: {problem[:200]}" for problem in pool.source_problems
        ]
    return notes.result(
        "all pools use built-in profiles",
        nothing=facts.none_of("adapterpools"),
        fix="Check that the service's configuration has the profile: it places by the default one "
        "otherwise.",
    )


def _capacity(facts: Facts) -> CheckResult:
    """Find waiting vreplicas, and what keeps the pool from growing for them."""
    notes, fixes = Notes(), dict[str, None]()
    notes.unknown += facts.cut("adapterpools", "vpods")
    waiting, none_of_them = _waiting(facts), facts.none_of("vpods")
    for pool in _read(facts, notes):
        vpods = waiting.pop(pool.key, [])
        pending = sum(_pending(vpod) for vpod in vpods) or _pending_of_others(facts, pool)
        if not pending:
            continue
        replicas = _replicas(facts, pool)
        heavy = [vpod.key for vpod in vpods if vpod.weight > pool.slots_per_pod]
        misfits = [
            problem
            for vpod in vpods
            if vpod.weight <= pool.slots_per_pod
            and (problem := pool.misfit(vpod) or pool.misfit_together(vpod))
        ]
        if heavy:
            notes.errors.append(
                f"AdapterPool {pool.key}: slotsPerVReplica of {', '.join(heavy[:3])} is over "
                f"slotsPerPod {pool.slots_per_pod}"
            )
            fixes[
                "Raise slotsPerPod, or lower slotsPerVReplica: no pod of that pool can ever take "
                "one."
            ] = None
        elif misfits:
            notes.errors.append(f"AdapterPool {pool.key}: {misfits[0]}")
            fixes["Make the AdapterPool and the VPod fit, as the message says."] = None
        elif pool.max_pods is not None and replicas is not None and replicas >= pool.max_pods:
            notes.warnings.append(
                f"AdapterPool {pool.key}: {counted(pending, 'vreplica')} wait, and it has its "
                f"maxPods {pool.max_pods} already"
            )
            fixes["Raise maxPods or slotsPerPod, or ask for less."] = None
        elif refused := _refused(facts, pool):
            notes.warnings.append(
                f"AdapterPool {pool.key}: {counted(pending, 'vreplica')} wait, and "
                f"{counted(len(refused), 'pod')} "
                f"of {replicas} without a node: {refused[0]}"
            )
            fixes[
                "kube-scheduler's message says what the nodes lack: more of it, or less in the pod "
                "template."
            ] = None
        else:
            notes.warnings.append(
                f"AdapterPool {pool.key}: {counted(pending, 'vreplica')} of {_vpods(vpods)} wait"
                if vpods
                else f"AdapterPool {pool.key}: {counted(pending, 'vreplica')} of objects of other "
                f"kinds wait, says its status"
            )
            fixes["`vreplica explain VPOD` says what each waits for, and what would place it."] = (
                None
            )
    there = {key_of(raw) for raw in facts.of("adapterpools").items}
    if not facts.of("adapterpools").truncated:
        for key, vpods in sorted(waiting.items()):
            if key not in there:
                what = counted(sum(map(_pending, vpods)), "vreplica")
                notes.errors.append(
                    f"AdapterPool {key} is not there, and {what} of {_vpods(vpods)} wait"
                )
                fixes[
                    "Create the AdapterPool, or correct spec.poolRef: see the check pool-names."
                ] = None
    return notes.result(
        "everything that is asked for is placed",
        fix=" ".join(fixes) or "Correct the AdapterPool, or see the check rights.",
        nothing="" if any(map(_has_others, facts.of("adapterpools").items)) else none_of_them,
    )


def _pending_of_others(facts: Facts, pool: AdapterPool) -> int:
    """The vreplicas that wait in a pool with foreign kinds, as its status says: doctor reads VPods
    only. 0 for other pools, whose status may just lag behind.
    """
    namespace, _, name = pool.key.partition("/")
    raw = facts.of("adapterpools").named(name, namespace)
    if raw is None or not _has_others(raw):
        return 0
    pending = mapping(raw, "status").get("pendingVReplicas", 0)
    return pending if type(pending) is int else 0


def _has_others(raw: Json) -> bool:
    return bool(sequence(raw, "spec", "sources"))


def _vpods(vpods: Sequence[VPod]) -> str:
    """How many vpods, and the names of the first three."""
    named = ", ".join(vpod.key for vpod in vpods[:3])
    return f"{counted(len(vpods), 'vpod')} ({named}{', ...' if len(vpods) > 3 else ''})"


def _waiting(facts: Facts) -> dict[str, list[VPod]]:
    found: dict[str, list[VPod]] = {}
    for vpod in facts.of("vpods").vpods():
        if _pending(vpod) and not vpod.deleting:
            found.setdefault(vpod.pool, []).append(vpod)
    return found


def _refused(facts: Facts, pool: AdapterPool) -> list[str]:
    """What kube-scheduler says of the pool's pods for which it finds no node."""
    return [
        refusal
        for pod in facts.of("pods").items
        if f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'labels', POOL_LABEL)}"
        == pool.key
        and is_pending(pod)
        and (refusal := refusal_of(pod))
    ]


def _pending(vpod: VPod) -> int:
    return max(0, vpod.vreplicas - sum(vpod.placements.values()))


def _replicas(facts: Facts, pool: AdapterPool) -> int | None:
    namespace, _, name = pool.stateful_set_key.partition("/")
    found: Json | None = facts.of("statefulsets").named(name, namespace)
    replicas = mapping(found, "spec").get("replicas", 1) if found is not None else None
    return replicas if type(replicas) is int else None


def _served(facts: Facts) -> CheckResult:
    """Find vreplicas on pods that do not serve them: for each pod how many, and why."""
    notes, lost = Notes(), dict[tuple[str, str], int]()
    pods = {pod.key: pod for pod in facts.of("pods").pods()}
    nodes = {text(raw, "metadata", "name"): node_from(raw) for raw in facts.of("nodes").items}
    vpods = 0
    for vpod in facts.of("vpods").vpods():
        namespace = vpod.pool.partition("/")[0]
        down = False
        for name, number in vpod.placements.items():
            key = f"{namespace}/{name}"
            pod = pods.get(key)
            why = why_unserved(pod, nodes.get(pod.node) if pod is not None else None)
            if why and not _may_be_cut_off(facts, pod, nodes):
                lost[key, why] = lost.get((key, why), 0) + number
                down = True
        vpods += down
    total = sum(lost.values())
    by_number = sorted(lost.items(), key=lambda item: (-item[1], placement_order(item[0][0])))
    notes.errors += [
        f"{pod}: {why}, and {counted(number, 'vreplica')} on it" for (pod, why), number in by_number
    ]
    if not lost:
        notes.unknown += facts.cut("vpods", "pods", "nodes")
    return notes.result(
        "every vreplica that is placed is on a pod that is Ready",
        bad=f"nobody serves {counted(total, 'vreplica')} of {counted(vpods, 'vpod')}"
        if lost
        else "",
        fix="Look at these pods and nodes. Where a node does not come back, delete it, or taint it "
        "node.kubernetes.io/out-of-service; rescheduleAfterSeconds of a pool says when its "
        "vreplicas go elsewhere.",
        nothing=facts.none_of("vpods"),
    )


def _may_be_cut_off(facts: Facts, pod: AdapterPod | None, nodes: Mapping[str, Node]) -> bool:
    """Whether the pod, or its node, may be among those that were not read. Whether it serves is
    then not known.
    """
    if pod is None:
        return facts.of("pods").truncated
    return bool(pod.node) and pod.node not in nodes and facts.of("nodes").truncated


POOLS: Final = (
    Check(
        "served",
        "Are all vreplicas that are placed on pods that serve them?",
        ("vpods", "pods", "nodes"),
        _served,
    ),
    Check(
        "pools",
        "Has every pool a StatefulSet whose pods opt in?",
        ("adapterpools", "statefulsets"),
        _stateful_sets,
    ),
    Check(
        "pool-names",
        "Does everything name a pool that is there?",
        ("adapterpools", "pods", "vpods"),
        _pool_labels,
    ),
    Check("profiles", "Can the pools' profiles and sources be used?", ("adapterpools",), _profiles),
    Check(
        "capacity",
        "Does anything wait for room that cannot come?",
        ("adapterpools", "vpods", "statefulsets", "pods"),
        _capacity,
    ),
)
