"""Changes that let a pool's present pods take more: pods that come by themselves, drain
annotations, cordons, nodes that are away, another pool.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from typing import Final, TypeVar

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.move_plan import Limits, MovePlan
from extender.engine.rebalance.movers import MOVES_MAX
from extender.engine.scaling.size import awaits_pods, plan_scale, waiting_without_growth
from extender.model.counted import counted
from extender.model.names import SCHEDULER_NAME, UNSCHEDULABLE_ANNOTATION
from extender.model.objects import AdapterPool, LabelSelector, Namespace, Node
from extender.model.safe_repr import safe_repr
from extender.whatif.bench import Bench, Change, exchanging
from extender.whatif.fix import Fix, in_words, objects, ready_again, uncordon
from extender.whatif.growth import bind, missing_pods
from extender.whatif.trial import Trial

T = TypeVar("T")

EACH_MAX: Final = 10
"""Things of a kind that are tried one by one."""
ALL_MAX: Final = 256
"""Things of a kind that are tried together."""
POOLS_TRIED_MAX: Final = 3


def _one_or_several(
    bench: Bench,
    things: Sequence[T],
    change: Callable[[Trial, Sequence[T]], bool | None],
    fix: Callable[[Sequence[T]], Fix],
) -> Iterator[Fix]:
    """Yield each of the things that helps alone. If none is enough, yield the fewest that are
    enough together, best first; or all of them, if that helps.
    """

    def changing(some: Sequence[T]) -> Change:
        return lambda trial: change(trial, some)

    helped: list[tuple[int, int, T]] = []
    enough = False
    for index, thing in enumerate(things[:EACH_MAX]):
        result = bench.helps(changing([thing]))
        if result is not None:
            helped.append((-result.places, index, thing))
            enough = enough or not result.left
            yield fix([thing]).seen(result, bench)
    if enough or len(things) < 2:
        return
    first = [thing for _, _, thing in sorted(helped, key=lambda item: item[:2])]
    ordered = [*first, *(thing for thing in things[:ALL_MAX] if thing not in first)]
    found = bench.smallest(lambda count: changing(ordered[:count]), 2, len(ordered))
    if found is not None:
        count, result = found
        yield fix(ordered[:count]).seen(result, bench)
        return
    result = bench.helps(changing(ordered))
    if result is not None:
        yield fix(ordered).seen(result, bench)


# -- what comes by itself --------------------------------------------------------------------------


def pods_that_come(bench: Bench) -> Iterator[Fix]:
    """Pods that do not exist, or wait for a node."""
    pool = bench.pool
    stateful_set = pool.stateful_set
    if stateful_set is None or pool.adapter_pool is None:
        return
    ordinals = list(missing_pods(pool, stateful_set))
    namespace, name = stateful_set.namespace, stateful_set.name

    def change(trial: Trial, some: Sequence[int]) -> bool:
        return len(bind(trial, pool, list(some))) == len(some)

    def fix(some: Sequence[int]) -> Fix:
        names = [f"{name}-{ordinal}" for ordinal in some]
        why_not = next(filter(None, (_why_not_bound(pool.by_ordinal.get(one)) for one in some)), "")
        return Fix(
            change=f"{in_words(names)} {'is' if len(names) == 1 else 'are'} bound to a node",
            subject=objects("Pod", [f"{namespace}/{one}" for one in names]),
            field="spec.nodeName",
            before="",
            after="any that takes work",
            by_itself=not why_not,
            note=why_not or "as soon as kube-scheduler finds a node",
        )

    yield from _one_or_several(bench, ordinals, change, fix)


def _why_not_bound(known: PodClaims | None) -> str:
    """Why a pod that waits for its node will probably not get one by itself; "" if nothing is
    known.
    """
    pod = known.pod if known is not None else None
    if known is None or pod is None or pod.node or pod.deleting or pod.finished:
        return ""
    if pod.refusal:
        return f"kube-scheduler finds no node for {pod.name}: {pod.refusal}"
    if pod.scheduler_name not in {"", SCHEDULER_NAME}:
        return (
            f"{pod.name} waits for {safe_repr(pod.scheduler_name)} (spec.schedulerName), not for "
            f"{SCHEDULER_NAME}"
        )
    return ""


def moves_that_make_room(bench: Bench) -> Iterator[Fix]:
    """Moves of other vpods that the evictor makes if the pool does not grow."""
    pool = bench.pool
    spec = pool.adapter_pool
    if spec is None or (bench.rivals and not bench.alone):
        return
    allows = partial(bench.state.selects, pool.key)
    plan = plan_scale(pool, allows)
    if plan is None or bench.key not in waiting_without_growth(pool, allows, plan):
        return
    limits = Limits(budget=max(MOVES_MAX, spec.moves_per_period))
    rooms, left = MovePlan(pool, limits).rooms_for(bench.key)
    if not rooms:
        return
    moves = sum(len(room.moves) for room in rooms)
    note = "within rebalance.movesPerPeriod and rebalance.cooldownSeconds"
    if awaits_pods(pool, plan):
        note += f", if the pods on their way do not come within {spec.scale_down_period_s} s"
    off = "the pool moves nothing: rebalance.movesPerPeriod is 0, or rebalance.dryRun is set"
    yield Fix(
        change=f"{counted(moves, 'move')} of other vpods would make room",
        subject=f"AdapterPool {pool.key}",
        field="the evictor's moves with the reason MakeRoom",
        before=0,
        after=moves,
        by_itself=spec.moves_to_shrink,
        note=note if spec.moves_to_shrink else off,
        places=len(rooms),
        left=left,
        alone=bench.alone,
    )


def closed_pods(bench: Bench) -> Iterator[Fix]:
    """Pods that the autoscaler empties to shrink the pool, and pods given up because they are not
    Ready.
    """
    pool = bench.pool
    names = [
        pod.name
        for ordinal in bits(pool.closed)
        if (pod := pool.by_ordinal.get(ordinal)) is not None
    ]
    if names:
        result = bench.helps(lambda trial: trial.set_closed(pool, 0))
        if result is not None:
            yield Fix(
                change=f"{in_words(names)} {'is' if len(names) == 1 else 'are'} open again",
                subject=f"AdapterPool {pool.key}",
                field="the autoscaler's closed ordinals",
                before=len(names),
                after=0,
                by_itself=True,
                note="the autoscaler opens them when they are needed",
            ).seen(result, bench)
    yield from _lost_pods(bench)


def _lost_pods(bench: Bench) -> Iterator[Fix]:
    pool = bench.pool

    def change(trial: Trial, some: Sequence[str]) -> None:
        trial.set_abandoned(pool, pool.abandoned - frozenset(some))

    def fix(some: Sequence[str]) -> Fix:
        namespace = pool.key.partition("/")[0]
        return Fix(
            change=f"{in_words(some)} {'is' if len(some) == 1 else 'are'} Ready again",
            subject=objects("Pod", [f"{namespace}/{one}" for one in some]),
            field="status.conditions[Ready]",
            before="False",
            after="True",
        )

    yield from _one_or_several(bench, sorted(pool.abandoned), change, fix)


# -- marks and nodes -------------------------------------------------------------------------------


def marked_pods(bench: Bench) -> Iterator[Fix]:
    """Pods that a person has annotated as unschedulable."""
    marked = [pod for pod in bench.pool.members() if pod.pod and pod.pod.unschedulable]

    def change(trial: Trial, some: Sequence[PodClaims]) -> None:
        for state in some:
            if state.pod is not None:
                trial.exchange(state.pod, replace(state.pod, unschedulable=False))

    def fix(some: Sequence[PodClaims]) -> Fix:
        keys = [state.pod.key for state in some if state.pod is not None]
        return Fix(
            change=f"lift {UNSCHEDULABLE_ANNOTATION} from "
            f"{in_words([state.name for state in some])}",
            subject=objects("Pod", keys),
            field=f"metadata.annotations[{UNSCHEDULABLE_ANNOTATION}]",
            before="true",
            after=None,
        )

    yield from _one_or_several(bench, marked, change, fix)


def bad_nodes(bench: Bench) -> Iterator[Fix]:
    """Nodes of the pool's pods that are cordoned or not Ready, and cordoned nodes that could take
    its waiting pods.
    """
    pool = bench.pool
    nodes: dict[str, Node] = {}
    for pod in pool.members():
        if pod.node is not None and not pod.node.takes_work:
            nodes[pod.node.name] = pod.node
    cordoned = [node for node in nodes.values() if node.cordoned and node.ready]
    away = [node for node in nodes.values() if not node.ready]
    yield from _one_or_several(bench, cordoned, _uncordon, uncordon)
    yield from _one_or_several(bench, away, _make_ready, _ready_again)
    yield from _nodes_for_waiting_pods(bench, nodes)


def _nodes_for_waiting_pods(bench: Bench, known: Mapping[str, Node]) -> Iterator[Fix]:
    """Cordoned nodes without a pod of the pool that could take pods that wait for a node."""
    pool = bench.pool
    stateful_set = pool.stateful_set
    missing = list(missing_pods(pool, stateful_set)) if stateful_set is not None else []
    if stateful_set is None or not missing:
        return
    fit = stateful_set.fit
    empty = [
        node
        for name, node in sorted(bench.state.nodes.items())
        if node.cordoned
        and node.ready
        and name not in known
        and (fit is None or fit.fits(name, node.labels, node.taints))
    ]

    def change(trial: Trial, some: Sequence[Node]) -> bool:
        _uncordon(trial, some)
        return bool(bind(trial, pool, missing))

    def fix(some: Sequence[Node]) -> Fix:
        return replace(uncordon(some), note="pods of the pool that wait for a node find one there")

    yield from _one_or_several(bench, empty, change, fix)


def _uncordon(trial: Trial, some: Sequence[Node]) -> None:
    for node in some:
        trial.exchange(node, replace(node, cordoned=False))


def _make_ready(trial: Trial, some: Sequence[Node]) -> None:
    for node in some:
        trial.exchange(node, replace(node, ready=True, cordoned=False))


def _ready_again(some: Sequence[Node]) -> Fix:
    note = "a node that is away holds what its pods carry: nothing moves for its sake"
    return replace(ready_again(some), note=note)


# -- who may use which pool ------------------------------------------------------------------------


def namespace_label(bench: Bench) -> Iterator[Fix]:
    """Labels with which the pool's namespaceSelector selects the vpod's namespace."""
    spec, vpod, state = bench.pool.adapter_pool, bench.vpod, bench.state
    if spec is None or state.allows(spec, vpod.namespace):
        return
    known = state.namespaces.get(vpod.namespace)
    labels = dict(known.labels) if known is not None else {}
    wanted = labels_selected(spec.namespace_selector, labels)
    if wanted is None:
        return
    new = (
        replace(known, labels=wanted)
        if known is not None
        else Namespace(name=vpod.namespace, labels=wanted)
    )
    result = bench.helps(exchanging(known, new))
    if result is not None:
        changed = sorted({k for k in {*labels, *wanted} if labels.get(k) != wanted.get(k)})
        words = " ".join(f"{key}={wanted[key]}" if key in wanted else f"{key}-" for key in changed)
        yield Fix(
            change=f"allow the namespace: label {vpod.namespace} with {words}",
            subject=f"Namespace {vpod.namespace}",
            field=f"metadata.labels[{changed[0]}]" if len(changed) == 1 else "metadata.labels",
            before=labels.get(changed[0])
            if len(changed) == 1
            else {k: labels.get(k) for k in changed},
            after=wanted.get(changed[0])
            if len(changed) == 1
            else {k: wanted.get(k) for k in changed},
        ).seen(result, bench)


def labels_selected(selector: LabelSelector, labels: dict[str, str]) -> dict[str, str] | None:
    """Change the labels as little as possible so that the selector selects them; None if
    impossible.
    """
    wanted = {**labels, **selector.match_labels}
    for requirement in selector.match_expressions:
        value = wanted.get(requirement.key)
        match requirement.operator:
            case "In" if requirement.values and value not in requirement.values:
                wanted[requirement.key] = requirement.values[0]
            case "Exists" if value is None:
                wanted[requirement.key] = "true"
            case "NotIn" if value in requirement.values:
                del wanted[requirement.key]
            case "DoesNotExist":
                wanted.pop(requirement.key, None)
            case _:
                pass
    return wanted if selector.matches(wanted) else None


def other_pool(bench: Bench) -> Iterator[Fix]:
    """For a vpod whose pool does not exist: the existing pools, the most similar name first."""
    if bench.pool.adapter_pool is not None:
        return
    vpod, key = bench.vpod, bench.pool.key
    for pool in nearest_pools(list(_known_pools(bench)), key)[:POOLS_TRIED_MAX]:
        result = bench.helps(exchanging(vpod, replace(vpod, pool=pool.key)))
        if result is not None:
            yield Fix(
                change=f"ask for AdapterPool {pool.key} instead of {key}",
                subject=f"VPod {vpod.key}",
                field="spec.poolRef",
                before=key,
                after=pool.key,
            ).seen(result, bench)


def _known_pools(bench: Bench) -> Iterator[AdapterPool]:
    for state in bench.state.pools.values():
        if state.adapter_pool is not None:
            yield state.adapter_pool


def nearest_pools(pools: Sequence[AdapterPool], key: str) -> list[AdapterPool]:
    """The pools, the one with the most similar key first."""
    return sorted(pools, key=lambda pool: (-SequenceMatcher(None, key, pool.key).ratio(), pool.key))
