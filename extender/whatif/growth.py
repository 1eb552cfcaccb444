"""Pods that are still to come, as they would come: from the StatefulSet, through our filter and
prioritize, onto a node.

kube-scheduler also asks for CPU, memory and volumes, of which nothing is known here: a node that
has none left counts as one that takes the pod, unless kube-scheduler has said that it finds none
for it (``held_back``). Everything else is as in a cluster: only nodes that take work and that the
StatefulSet's template fits, those that declare slots within them, the hard zone rule of the pool's
profile, the best score, then the emptiest.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.engine.scaling.size import plan_scale
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state import State
from extender.model.ledger import Ledger
from extender.model.objects import AdapterPod, Node, StatefulSet, VPod
from extender.node.bind_ledger import bind_ledger_of, ledger_of_ordinal
from extender.node.exposure import prioritize_nodes
from extender.node.verbs import filter_nodes, slots_of
from extender.whatif.trial import Trial

PODS_BOUND_MAX: Final = 10_000
"""At once: as many as a pool without maxPods may have."""
ROUNDS_MAX: Final = 20
"""Of growing and placing in turn, until the pool has the size that it needs."""
REFUSALS_MAX: Final = 100
"""Different ones of a pool that are looked into; who is refused in the same words is refused for
the same.
"""
ALIKE_MAX: Final = 3
"""Nodes that are asked about of those that only differ by name: one may be refused for its own
slots.
"""


def add_pods(trial: Trial, pool: PoolState, count: int) -> list[AdapterPod]:
    """Raise the StatefulSet by ``count`` and bind the new pods; those that found a node. Nothing
    without a StatefulSet.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or pool.adapter_pool is None:
        return []
    grown = replace(stateful_set, replicas=stateful_set.replicas + count)
    trial.exchange(stateful_set, grown)
    return bind(trial, pool, list(grown.ordinals[stateful_set.replicas :]))


def bind_missing(trial: Trial, pool: PoolState, *, but: Collection[int] = ()) -> list[AdapterPod]:
    """Bind every pod that the StatefulSet wants and that has no node, those that are to be created
    anew too.

    ``but``: ordinals that go on waiting.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or pool.adapter_pool is None:
        return []
    ordinals = (ordinal for ordinal in missing_pods(pool, stateful_set) if ordinal not in but)
    return list(_bound(trial, pool, list(islice(ordinals, PODS_BOUND_MAX))))


def bind(trial: Trial, pool: PoolState, ordinals: list[int]) -> list[AdapterPod]:
    """Bind these ordinals' pods; those that found a node."""
    return list(_bound(trial, pool, ordinals))


def missing_pods(pool: PoolState, stateful_set: StatefulSet) -> Iterator[int]:
    """Ordinals whose pod is not there, waits for its node, or is about to be replaced."""
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        pod = known.pod if known is not None else None
        if pod is None or not pod.node or pod.assumed or pod.deleting or pod.finished:
            yield ordinal


def held_back(pool: PoolState, state: State) -> dict[int, str]:
    """Ordinals that kube-scheduler has refused though nodes would take them as far as is known
    here, with what it says.

    What it lacks there (CPU, memory, volumes, leave of another filter) is not known: no change that
    is thought of here can be seen to bring it. A refusal that our own rules explain is left out:
    who asks may change what they look at.
    """
    found: dict[int, str] = {}
    if pool.stateful_set is None or pool.adapter_pool is None:
        return found
    chooser = _Chooser(state, pool)
    seen: dict[str, bool] = {}
    for ordinal in islice(missing_pods(pool, pool.stateful_set), PODS_BOUND_MAX):
        known = pool.by_ordinal.get(ordinal)
        pod = known.pod if known is not None else None
        if pod is None or not pod.refusal or pod.node or pod.deleting or pod.finished:
            continue
        if pod.refusal not in seen and len(seen) < REFUSALS_MAX:
            seen[pod.refusal] = bool(chooser.passing(pod))
        if seen.get(pod.refusal, True):
            found[ordinal] = pod.refusal
    return found


def _bound(trial: Trial, pool: PoolState, ordinals: list[int]) -> Iterator[AdapterPod]:
    state = trial.state
    # All of them wait first: what each is to carry depends on who else is to come.
    waiting = [_as_pending(trial, pool, ordinal) for ordinal in ordinals]
    chooser = _Chooser(state, pool)
    found: list[tuple[AdapterPod, AdapterPod]] = []
    for pod in waiting:
        trial.check_time()
        carried = chooser.carried(pod)
        node = chooser.choose(pod, carried)
        if node is not None:
            # The next one is chosen a node when this one has got its part of what waits, by its
            # bind or by the placer.
            bound = replace(pod, node=node.name, ready=True, ledger=carried, ledger_text=None)
            ordinal_ledger = ledger_of_ordinal(pool, pod.name, slots_of(state, pod))
            trial.exchange(pod, bound)
            found.append((bound, replace(bound, ledger=ordinal_ledger)))
    # Which vpods get it is decided anew by who asks, in the turns that are theirs.
    for bound, standing_there in found:
        trial.exchange(bound, standing_there)
        yield standing_there


def _as_pending(trial: Trial, pool: PoolState, ordinal: int) -> AdapterPod:
    """The ordinal's pod as it waits for its node, new where there is none or the one that is there
    goes.
    """
    stateful_set, spec = pool.stateful_set, pool.adapter_pool
    if stateful_set is None or spec is None:
        raise ValueError("a pool without a StatefulSet gets no pods")
    name = f"{stateful_set.name}-{ordinal}"
    known = pool.pods.get(name)
    old = known.pod if known is not None else None
    if old is not None and not (old.node or old.deleting or old.finished):
        return old
    if old is not None and old.assumed:
        pod = replace(old, node="", assumed=False)
    else:
        pod = AdapterPod(
            namespace=stateful_set.namespace,
            name=name,
            uid=f"to-come-{name}",
            pool=pool.key,
            owner=stateful_set.name,
            owner_uid=stateful_set.uid,
            ordinal=ordinal,
            slots=spec.slots_per_pod,
            # A mark on a pod goes with the pod.
            unschedulable=False,
        )
    trial.exchange(old, pod)
    return pod


class _Chooser:
    """Chooses nodes for the pods of one pool, one after the other; the state follows between two of
    them.
    """

    def __init__(self, state: State, pool: PoolState) -> None:
        self._state = state
        self._pool = pool
        self._kinds: dict[tuple[str, int], list[str]] = {}
        """(Zone, adapter pods there) -> nodes that declare no slots, last name first."""
        self._counting: list[str] = []
        """Nodes that declare slots: each is a case of its own."""
        for name in sorted(pool.hosting.zone_of, reverse=True):
            if state.nodes[name].slots is None:
                self._kinds.setdefault(self._kind_of(name), []).append(name)
            else:
                self._counting.append(name)

    def _kind_of(self, node: str) -> tuple[str, int]:
        return self._state.nodes[node].zone, len(self._state.pods_on_node.get(node, ()))

    def choose(self, pod: AdapterPod, carried: Ledger) -> Node | None:
        """The node where kube-scheduler would put it, None where none takes it. ``carried``: what
        it would carry.
        """
        state = self._state
        passed = self.passing(pod)
        if not passed:
            return None
        scores = prioritize_nodes(state, pod, carried, passed, state.nodes.get)
        best = min(
            passed, key=lambda name: (-scores[name], len(state.pods_on_node.get(name, ())), name)
        )
        self._move_on(best)
        return state.nodes[best]

    def passing(self, pod: AdapterPod) -> Collection[str]:
        """Nodes that take the pod as far as is known here, of those that only differ by
        name a few.
        """
        asked = sorted({*self._candidates(), *self._returning(pod)})
        return filter_nodes(self._state, pod, asked, self._state.nodes.get).passed

    def _candidates(self) -> Iterator[str]:
        for names in self._kinds.values():
            yield from names[-ALIKE_MAX:]
        yield from self._counting

    def _returning(self, pod: AdapterPod) -> Iterator[str]:
        """The node where its ordinal last stood: it is preferred."""
        known = self._pool.pods.get(pod.name)
        if known is not None and known.last_place[0] in self._pool.hosting.zone_of:
            yield known.last_place[0]

    def carried(self, pod: AdapterPod) -> Ledger:
        """What stands on its ordinal, and its part of what waits."""
        state = self._state

        def allows(vpod: VPod) -> bool:
            return state.selects(pod.pool, vpod)

        slots = slots_of(state, pod)
        return bind_ledger_of(self._pool, pod, slots=slots, with_planned=True, allows=allows).ledger

    def _move_on(self, node: str) -> None:
        """One more pod is about to stand there."""
        kind = self._kind_of(node)
        names = self._kinds.get(kind)
        if names is not None and node in names:
            names.remove(node)
            if not names:
                del self._kinds[kind]
            self._kinds.setdefault((kind[0], kind[1] + 1), []).append(node)


def autoscale(
    trial: Trial, pool: PoolState, turns: Iterable[str], *, most: int = PODS_BOUND_MAX
) -> bool:
    """Let the pool grow to what it needs, and place what waits, in turn, until neither changes
    anything.

    ``turns``: keys of the vpods that are decided after each step, in this order, those that wait of
    them. ``most``: pods that are added altogether. False where the pods that it asks for find no
    node.
    """
    state = trial.state

    def allows(vpod: VPod) -> bool:
        return state.selects(pool.key, vpod)

    for _ in range(ROUNDS_MAX):
        plan = plan_scale(pool, allows)
        replicas = pool.stateful_set.replicas if pool.stateful_set is not None else 0
        if plan is None or plan.wanted <= replicas or most <= 0:
            return True
        added = add_pods(trial, pool, min(most, plan.wanted - replicas))
        if not added:
            return False
        most -= len(added)
        for key in turns:
            if key in pool.unplaced:
                trial.decide(pool, pool.vpods[key])
    return True
