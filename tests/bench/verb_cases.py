"""The rows of ``verbs``: what is asked, about whom, with which lists, and what a row is called.

Every pending pod but the last is bound by one row, once; the last is the one that all other rows
ask about.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from tests.bench import requests
from tests.bench.latency import OURS
from tests.bench.lists import KINDS, REORDERED, SAME, NodeLists
from tests.bench.population import (
    Obj,
    Pool,
    bound_pod,
    node,
    node_name,
    pending_pod,
    plain_pod,
    pod_uid,
)
from tests.bench.requests import BIND, FILTER, PREEMPT, PRIORITIZE

PAIR: Final = f"{FILTER}+{PRIORITIZE}"
"""Both, one after the other, for one pod."""
CYCLE: Final = f"{PAIR}+{BIND}"
"""All that kube-scheduler asks about a pod that is bound."""
CONNECTIONS: Final = 4
"""Where several requests are sent at once."""
REFUSED: Final = (1, 300)
"""Nodes without slots among those of a list, where that is measured."""


@dataclass(frozen=True)
class Scale:
    """How much is measured: sizes in nodes, ``rounds`` of one request to each peer; more ``nodes``
    than any list has names.
    """

    names: tuple[int, ...]
    whole_nodes: int
    rounds: int
    nodes: int
    bound: int
    pending: int
    vpods: int


FULL: Final = Scale((100, 1000, 5000), 1000, 400, nodes=5500, bound=1000, pending=1500, vpods=2000)
SHORT: Final = Scale((100, 5000), 200, 60, nodes=5500, bound=400, pending=220, vpods=600)


@dataclass(frozen=True)
class Case:
    """One row: ``body`` makes the request with a number, from 0; ``entries`` nodes are answered."""

    verb: str
    form: str
    nodes: int
    profile: str
    body: Callable[[int], bytes]
    entries: int
    connections: int = 1
    kind: str = ""
    """Of the lists of names; "" without."""
    pod: Callable[[int], Obj] | None = None
    """Whom the pair, or the cycle, with a number is about."""
    requests_max: int | None = None
    """Where each may be sent only once."""
    refused: int = 0
    """Nodes among those asked about that have no slots. Peers, which decide nothing, pass them all
    the same.
    """

    def passed_by(self, name: str) -> int:
        """Nodes that a peer has to pass."""
        return self.entries - (self.refused if name == OURS else 0)

    def described(self) -> dict[str, str | int]:
        """For people."""
        return {
            "verb": self.verb,
            "body": self.form,
            **({"list": self.kind} if self.kind else {}),
            "nodes": self.nodes,
            **({"refused": self.refused} if self.refused else {}),
            "profile": self.profile,
            "connections": self.connections,
        }


def cases(scale: Scale, dispatcher: Pool, strict: Pool, seed: int) -> Iterator[Case]:
    """All rows. Binds come last: they change the cluster."""
    pod = pending_pod(dispatcher, dispatcher.ordinals - 1)
    known = _node_names(scale.nodes)
    for count in scale.names:
        yield from _names(pod, "default", known, count, seed)
    yield from _names(pending_pod(strict, strict.ordinals - 1), "ha", known, scale.names[-1], seed)
    # Of a pod that is none of ours: what the list itself costs, and next to nothing.
    yield from _names(plain_pod(), "no adapter", known, scale.names[-1], seed)
    for refused in REFUSED:
        yield from _refusing(pod, scale, refused, seed)
    for count in scale.names:
        yield _preempt(dispatcher, pod, count, whole=False)
    yield from _whole(pod, scale.whole_nodes)
    yield _preempt(dispatcher, pod, scale.whole_nodes, whole=True)
    count = scale.names[-2]
    yield from (
        replace(case, connections=CONNECTIONS)
        for case in _names(pod, "default", known, count, seed)
        if (case.verb, case.kind) == (FILTER, SAME)
    )
    # The last pending pod is asked about above; all others are bound here, each once.
    ordinals = iter(range(dispatcher.bound, dispatcher.ordinals - 1))
    share = (dispatcher.pending - 1) // 3
    yield _bind(dispatcher, list(islice(ordinals, share)), scale.nodes, 1)
    yield _bind(dispatcher, list(islice(ordinals, share)), scale.nodes, CONNECTIONS)
    yield _cycle(dispatcher, list(islice(ordinals, share)), scale, seed)


def _names(pod: Obj, profile: str, known: Sequence[str], count: int, seed: int) -> Iterator[Case]:
    for kind in KINDS:
        lists = NodeLists(known, count, kind, seed)

        def body(number: int, lists: NodeLists = lists) -> bytes:
            return requests.of_names(pod, lists.of(number))

        for verb in (FILTER, PRIORITIZE, PAIR):
            yield Case(
                verb, "names", count, profile, body, count, kind=kind, pod=lambda _number: pod
            )


def _refusing(pod: Obj, scale: Scale, refused: int, seed: int) -> Iterator[Case]:
    """Nodes in a new order, some of which may not take the pod."""
    count = scale.names[-1]
    full = [node_name(number) for number in range(scale.nodes, scale.nodes + refused)]
    lists = NodeLists([*full, *_node_names(scale.nodes)], count, REORDERED, seed)

    def body(number: int) -> bytes:
        return requests.of_names(pod, lists.of(number))

    for verb in (FILTER, PAIR):
        yield Case(
            verb,
            "names",
            count,
            "default",
            body,
            count,
            kind=REORDERED,
            pod=lambda _number: pod,
            refused=refused,
        )


def _whole(pod: Obj, count: int) -> Iterator[Case]:
    body = requests.of_nodes(pod, [node(number) for number in range(count)])
    for verb in (FILTER, PRIORITIZE):
        yield Case(verb, "nodes", count, "default", lambda _number: body, count)


def _preempt(pool: Pool, pod: Obj, count: int, *, whole: bool) -> Case:
    """On each node one pod to evict: an adapter pod where there is one, else somebody else's."""
    urgent: Obj = {**pod, "spec": {**pod["spec"], "priorityClassName": "high", "priority": 1000}}
    if whole:
        victims = {
            name: [bound_pod(pool, number, name, {})]
            for number, name in enumerate(_node_names(count))
        }
        body = requests.of_victims(urgent, victims)
    else:
        uids = {name: [pod_uid(pool, number)] for number, name in enumerate(_node_names(count))}
        body = requests.of_meta_victims(urgent, uids)
    return Case(PREEMPT, "pods" if whole else "uids", count, "default", lambda _number: body, count)


def _bind(pool: Pool, ordinals: Sequence[int], nodes: int, connections: int) -> Case:
    bodies = [
        requests.of_binding(pending_pod(pool, ordinal), node_name(ordinal % nodes))
        for ordinal in ordinals
    ]
    return Case(
        BIND, "binding", 1, "default", bodies.__getitem__, 1, connections, requests_max=len(bodies)
    )


def _cycle(pool: Pool, ordinals: Sequence[int], scale: Scale, seed: int) -> Case:
    """All verbs about one pod after another, each of which is bound before the next one is asked
    about.
    """
    count = scale.names[-1]
    pods = [pending_pod(pool, ordinal) for ordinal in ordinals]
    lists = NodeLists(_node_names(scale.nodes), count, REORDERED, seed)

    def body(number: int) -> bytes:
        return requests.of_names(pods[number], lists.of(number))

    return Case(
        CYCLE,
        "names",
        count,
        "default",
        body,
        count,
        kind=REORDERED,
        pod=pods.__getitem__,
        requests_max=len(pods),
    )


def _node_names(count: int) -> list[str]:
    return [node_name(number) for number in range(count)]
