"""Adds the pods that are still to come: from the StatefulSet, through filter and prioritize, to a
node.

kube-scheduler also checks CPU, memory and volumes, which are not known here. A node without any of
these left counts as one that takes the pod, unless kube-scheduler has reported that it finds no
node (``held_back``). Everything else is as in a cluster: a node must take work and match the
StatefulSet's template, have slots left if it declares them, and pass the profile's hard zone rule.
The best score wins, then the node with the fewest adapter pods.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from extender.engine.scaling.size import plan_scale
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import Ledger
from extender.model.objects import AdapterPod, Node, StatefulSet
from extender.node.exposure import prioritize_nodes
from extender.node.verbs import bind_ledger_in, filter_nodes
from extender.whatif.trial import Trial

PODS_BOUND_MAX: Final = 10_000
"""Pods bound in one call: as many as a pool without maxPods may have."""
ROUNDS_MAX: Final = 20
"""Rounds of growing and placing until the pool has the size that it needs."""
REFUSALS_MAX: Final = 100
"""Different refusals of a pool that are examined. Pods with the same text are refused for the same
reason.
"""
ALIKE_MAX: Final = 3
"""Nodes to ask of each group that differs only by name. There are several because one may be
refused for its own slots.
"""


def add_pods(trial: Trial, pool: PoolState, count: int) -> list[AdapterPod]:
    """Raise the StatefulSet by ``count`` and bind the new pods. Return those that found a node;
    none without a StatefulSet.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or pool.adapter_pool is None:
        return []
    grown = replace(stateful_set, replicas=stateful_set.replicas + count)
    trial.exchange(stateful_set, grown)
    return bind(trial, pool, list(grown.ordinals[stateful_set.replicas :]))


def bind_missing(trial: Trial, pool: PoolState, *, but: Collection[int] = ()) -> list[AdapterPod]:
    """Bind every pod that the StatefulSet wants and that has no node, also those that must be
    created again. ``but``: ordinals that go on waiting.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or pool.adapter_pool is None:
        return []
    ordinals = (ordinal for ordinal in missing_pods(pool, stateful_set) if ordinal not in but)
    return bind(trial, pool, list(islice(ordinals, PODS_BOUND_MAX)))


def missing_pods(pool: PoolState, stateful_set: StatefulSet) -> Iterator[int]:
    """Yield ordinals whose pod does not exist, waits for its node, or is about to be replaced."""
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        pod = known.pod if known is not None else None
        if pod is None or not pod.node or pod.assumed or pod.deleting or pod.finished:
            yield ordinal


def held_back(pool: PoolState, state: ClusterState) -> dict[int, str]:
    """Find ordinals that kube-scheduler has refused although nodes would take them as far as is
    known here. The values are what kube-scheduler says.

    What the nodes lack (CPU, memory, volumes, or what another filter wants) is not known, so no
    trial can show that a change helps. Refusals that our own rules explain are left out, because a
    what-if may change what these rules look at.
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


def bind(trial: Trial, pool: PoolState, ordinals: list[int]) -> list[AdapterPod]:
    """Bind the pods of these ordinals. Return those that found a node."""
    state = trial.state
    # All of them wait first: what each pod carries depends on the others that are to come.
    waiting = [_as_pending(trial, pool, ordinal) for ordinal in ordinals]
    chooser = _Chooser(state, pool)
    found: list[tuple[AdapterPod, AdapterPod]] = []
    for pod in waiting:
        trial.check_time()
        try:
            carried = bind_ledger_in(state, pod, with_added=True).ledger
        except LedgerTooLarge:
            continue  # filter refuses it on every node
        node = chooser.choose(pod, carried)
        if node is not None:
            # The pod takes its part of the waiting vreplicas before a node is chosen for the next
            # one, as with a bind or the placer.
            bound = replace(pod, node=node.name, ready=True, ledger=carried, ledger_text=None)
            ordinal_ledger = bind_ledger_in(state, pod, with_added=False).ledger
            trial.exchange(pod, bound)
            found.append((bound, replace(bound, ledger=ordinal_ledger)))
    # Return these vreplicas: the caller decides which vpods get them, in its own order.
    for bound, standing_there in found:
        trial.exchange(bound, standing_there)
    return [standing_there for _, standing_there in found]


def _as_pending(trial: Trial, pool: PoolState, ordinal: int) -> AdapterPod:
    """Return the ordinal's pod as it waits for its node. A new pod is made if there is none, or if
    the old one is to be replaced.
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
            # The drain annotation goes with the old pod.
            unschedulable=False,
        )
    trial.exchange(old, pod)
    return pod


class _Chooser:
    """Chooses nodes for the pods of one pool, one after the other. The caller updates the state
    after each.
    """

    def __init__(self, state: ClusterState, pool: PoolState) -> None:
        self._state = state
        self._pool = pool
        self._kinds: dict[tuple[str, int], list[str]] = {}
        """(Zone, number of adapter pods on the node) -> nodes that declare no slots, last name
        first.
        """
        self._counting: list[str] = []
        """Nodes that declare slots: each must be asked."""
        for name in sorted(pool.hosting.zone_of, reverse=True):
            if state.nodes[name].slots is None:
                self._kinds.setdefault(self._kind_of(name), []).append(name)
            else:
                self._counting.append(name)

    def _kind_of(self, node: str) -> tuple[str, int]:
        return self._state.nodes[node].zone, len(self._state.pods_on_node.get(node, ()))

    def choose(self, pod: AdapterPod, carried: Ledger) -> Node | None:
        """Return the node that kube-scheduler would choose, None if none takes the pod.
        ``carried``: the ledger that it would carry.
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
        """Return nodes that take the pod as far as is known here. Of nodes that differ only by
        name, a few are asked.
        """
        asked = sorted({*self._candidates(), *self._returning(pod)})
        return filter_nodes(self._state, pod, asked, self._state.nodes.get).passed

    def _candidates(self) -> Iterator[str]:
        for names in self._kinds.values():
            yield from names[-ALIKE_MAX:]
        yield from self._counting

    def _returning(self, pod: AdapterPod) -> Iterator[str]:
        """The node where the ordinal last stood: it is preferred."""
        known = self._pool.pods.get(pod.name)
        if known is not None and known.last_location[0] in self._pool.hosting.zone_of:
            yield known.last_location[0]

    def _move_on(self, node: str) -> None:
        """Count one more pod on the node."""
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
    """Let the pool grow to what it needs and place what waits, in turn, until nothing changes.

    ``turns``: keys of vpods; after each step, those of them that wait are decided in this order.
    ``most``: pods to add altogether. Return False if no added pod finds a node.
    """
    allows = partial(trial.state.selects, pool.key)
    for _ in range(ROUNDS_MAX):
        plan = plan_scale(pool, allows)
        replicas = pool.stateful_set.replicas if pool.stateful_set is not None else 0
        if plan is None or plan.wanted <= replicas or most <= 0:
            return True
        count = min(most, plan.wanted - replicas)
        if not add_pods(trial, pool, count):
            return False
        most -= count
        for key in turns:
            if key in pool.vpods_with_pending:
                trial.decide(pool, pool.vpods[key])
    return True
