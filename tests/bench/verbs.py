"""``verbs``: filter, prioritize, preempt and bind over HTTP, each beside a no-op extender in Go and one in aiohttp.

Theory of operation. ``vreplica serve`` as shipped reads a settled cluster from a stand-in API server; the peers know nothing and
decide nothing. The pod that is asked about comes back: it carries vreplicas, so filter and prioritize have all their work, by the
default profile and by ``ha``, whose zone rule is hard; nodes declare slots, so these are added up too. Bind binds a pod of its
own each time, against an API server that answers at once; the peers' bind answers ok without one.

kube-scheduler sends one filter at a time and prioritizes one pod at a time, so those are measured down one connection; several
connections show what stands in line. Bytes are kube-scheduler's (``requests``), the peers are asked in turn (``latency``).

With names, each size is measured with three kinds of lists (``lists``), by verb, and as kube-scheduler asks for one pod: filter, then
prioritize about what filter has passed (``filter+prioritize``); at the largest size also with nodes that are refused. That pair with a reordered or another list is what a pod costs
kube-scheduler; the same list again, and prioritize about a list that no filter has passed, show where that goes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import orjson

from tests.bench import requests
from tests.bench.latency import OURS, Sample, figures, interleaved
from tests.bench.lists import KINDS, REORDERED, SAME, NodeLists
from tests.bench.options import Options
from tests.bench.peers.build import noop_program
from tests.bench.peers.start import (
    Running,
    processes,
    start_aiohttp,
    start_noop,
    start_service,
    start_stand_in,
)
from tests.bench.population import Obj, Pool, Population, bound_pod, node, node_name, pending_pod, pod_uid
from tests.bench.requests import BIND, FILTER, PREEMPT, PRIORITIZE
from tests.bench.result import Result, Value
from tests.bench.wire import Connections

GO: Final = "go"
AIOHTTP: Final = "aiohttp"
PAIR: Final = f"{FILTER}+{PRIORITIZE}"
"""Both, one after the other, for one pod."""
CONNECTIONS: Final = 4
"""Where several requests are sent at once."""
REFUSED: Final = (1, 300)
"""Nodes without slots among those of a list, where that is measured."""
CASE_SECONDS_MAX: Final = 40.0
"""A case ends then with the requests that it has."""


@dataclass(frozen=True)
class Scale:
    """How much is measured: sizes in nodes, ``rounds`` of one request to each peer; more ``nodes`` than any list has names."""

    names: tuple[int, ...]
    whole_nodes: int
    rounds: int
    nodes: int
    bound: int
    pending: int
    vpods: int


FULL: Final = Scale((100, 1000, 5000), 1000, 400, nodes=5500, bound=1000, pending=1100, vpods=2000)
SHORT: Final = Scale((100, 5000), 200, 60, nodes=5500, bound=400, pending=200, vpods=600)


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
    pod: Obj | None = None
    """Whom a pair is about."""
    requests_max: int | None = None
    """Where each may be sent only once."""
    refused: int = 0
    """Nodes among those asked about that have no slots. Peers, which decide nothing, pass them all the same."""

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


def bench(options: Options) -> Iterator[Result]:
    """A result for each verb, size and form of body."""
    scale = SHORT if options.short else FULL
    program = noop_program()
    dispatcher = Pool("dispatcher", scale.bound, scale.pending, scale.vpods)
    strict = Pool("receiver", bound=60, pending=20, vpods=150, profile="ha")
    with processes() as programs:
        api = start_stand_in(programs, Population(scale.nodes, (dispatcher, strict), full=max(REFUSED)))
        peers = {
            OURS: start_service(programs, api),
            GO: start_noop(programs, program),
            AIOHTTP: start_aiohttp(programs),
        }
        for case in cases(scale, dispatcher, strict, options.seed):
            yield measured(case, peers, scale.rounds)


def cases(scale: Scale, dispatcher: Pool, strict: Pool, seed: int) -> Iterator[Case]:
    """All rows. Binds come last: they change the cluster."""
    pod = pending_pod(dispatcher, dispatcher.ordinals - 1)
    known = _node_names(scale.nodes)
    for count in scale.names:
        yield from _names(pod, "default", known, count, seed)
    yield from _names(pending_pod(strict, strict.ordinals - 1), "ha", known, scale.names[-1], seed)
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
    share = (dispatcher.pending - 1) // 2
    yield _bind(dispatcher, list(islice(ordinals, share)), scale.nodes, 1)
    yield _bind(dispatcher, list(islice(ordinals, share)), scale.nodes, CONNECTIONS)


def measured(case: Case, peers: Mapping[str, Running], rounds: int) -> Result:
    """Ask all peers the same. Raises AssertionError for an answer that leaves nodes out."""
    rounds //= case.connections
    if case.requests_max is not None:
        # Each once, warm-up included.
        rounds = min(rounds, case.requests_max // case.connections * 9 // 10 - 1)
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(Connections(peer.host, case.connections))
            for name, peer in peers.items()
        }
        parts: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
        if case.verb == PAIR:
            asks = {
                name: _ask_pair(case, connections, parts[name], case.passed_by(name))
                for name, connections in opened.items()
            }
        else:
            if case.verb != BIND:
                for name, connections in opened.items():
                    _check(case, connections, case.passed_by(name))
            asks = {name: _ask(case, connections) for name, connections in opened.items()}
        pids = {name: peer.process.pid for name, peer in peers.items()}
        samples = interleaved(asks, rounds=rounds, seconds_max=CASE_SECONDS_MAX, pids=pids)
    found = figures(samples)
    if case.verb == PAIR:
        found |= _figures_of_parts(parts, len(samples[OURS].seconds))
    return Result("verbs", case.described(), found)


def _ask(case: Case, connections: Connections) -> Callable[[], list[float]]:
    position = 0

    def ask() -> list[float]:
        nonlocal position
        batch = [
            requests.whole(connections.host, case.verb, case.body(position + index))
            for index in range(case.connections)
        ]
        position += case.connections
        answers = connections.exchange_all(batch)
        if case.verb == BIND:
            errors = [body for body, _ in answers if orjson.loads(body)["Error"]]
            assert not errors, errors
        return [seconds for _, seconds in answers]

    return ask


def _ask_pair(
    case: Case, connections: Connections, parts: list[tuple[float, float]], wanted: int
) -> Callable[[], list[float]]:
    """Filter, then prioritize about what it has passed, in its order, as kube-scheduler does; ``parts`` gets the seconds of both."""
    assert case.pod is not None
    pod, position = case.pod, 0

    def ask() -> list[float]:
        nonlocal position
        first = requests.whole(connections.host, FILTER, case.body(position))
        position += 1
        answer, filter_s = connections.exchange(first)
        passed = orjson.loads(answer)["NodeNames"]
        assert len(passed) == wanted, f"{len(passed)} of {wanted} nodes pass"
        second = requests.whole(connections.host, PRIORITIZE, requests.of_names(pod, passed))
        answer, prioritize_s = connections.exchange(second)
        scored = len(orjson.loads(answer))
        assert scored == wanted, f"{scored} of {wanted} nodes have a score"
        parts.append((filter_s, prioritize_s))
        return [filter_s + prioritize_s]

    return ask


def _figures_of_parts(parts: Mapping[str, list[tuple[float, float]]], count: int) -> dict[str, Value]:
    """Medians of each verb of the last ``count`` pairs, ours, the peers', and ours by theirs."""
    found: dict[str, Value] = {}
    for index, verb in enumerate((FILTER, PRIORITIZE)):
        p50_ms = {
            name: Sample([pair[index] for pair in pairs[-count:]]).percentile_ms(50)
            for name, pairs in parts.items()
        }
        found[f"{verb}P50Ms"] = p50_ms[OURS]
        for name, theirs in p50_ms.items():
            if name != OURS:
                found[f"{verb}P50To{name.capitalize()}Ratio"] = p50_ms[OURS] / theirs
    return found


def _check(case: Case, connections: Connections, wanted: int) -> None:
    body, _ = connections.exchange(requests.whole(connections.host, case.verb, case.body(0)))
    answer = orjson.loads(body)
    if case.verb == FILTER:
        passed = answer["NodeNames"] if case.form == "names" else answer["Nodes"]["items"]
        assert len(passed) == wanted, f"{len(passed)} of {wanted} nodes pass: {body[-500:]!r}"
    elif case.verb == PRIORITIZE:
        assert len(answer) == case.entries, f"{len(answer)} of {case.entries} nodes have a score"
    else:
        assert answer["NodeNameToMetaVictims"], "no node is left to preempt on"


def _names(pod: Obj, profile: str, known: Sequence[str], count: int, seed: int) -> Iterator[Case]:
    for kind in KINDS:
        lists = NodeLists(known, count, kind, seed)

        def body(number: int, lists: NodeLists = lists) -> bytes:
            return requests.of_names(pod, lists.of(number))

        for verb in (FILTER, PRIORITIZE, PAIR):
            yield Case(verb, "names", count, profile, body, count, kind=kind, pod=pod)


def _refusing(pod: Obj, scale: Scale, refused: int, seed: int) -> Iterator[Case]:
    """Nodes in a new order, some of which may not take the pod."""
    count = scale.names[-1]
    full = [node_name(number) for number in range(scale.nodes, scale.nodes + refused)]
    lists = NodeLists([*full, *_node_names(scale.nodes)], count, REORDERED, seed)

    def body(number: int) -> bytes:
        return requests.of_names(pod, lists.of(number))

    for verb in (FILTER, PAIR):
        yield Case(verb, "names", count, "default", body, count, kind=REORDERED, pod=pod, refused=refused)


def _whole(pod: Obj, count: int) -> Iterator[Case]:
    body = requests.of_nodes(pod, [node(number) for number in range(count)])
    for verb in (FILTER, PRIORITIZE):
        yield Case(verb, "nodes", count, "default", lambda _number: body, count)


def _preempt(pool: Pool, pod: Obj, count: int, *, whole: bool) -> Case:
    """On each node one pod to evict: an adapter pod where there is one, else somebody else's."""
    urgent: Obj = {**pod, "spec": {**pod["spec"], "priorityClassName": "high", "priority": 1000}}
    if whole:
        victims = {
            name: [bound_pod(pool, number, name, {})] for number, name in enumerate(_node_names(count))
        }
        body = requests.of_victims(urgent, victims)
    else:
        uids = {name: [pod_uid(pool, number)] for number, name in enumerate(_node_names(count))}
        body = requests.of_meta_victims(urgent, uids)
    return Case(PREEMPT, "pods" if whole else "uids", count, "default", lambda _number: body, count)


def _bind(pool: Pool, ordinals: Sequence[int], nodes: int, connections: int) -> Case:
    bodies = [
        requests.of_binding(pending_pod(pool, ordinal), node_name(ordinal % nodes)) for ordinal in ordinals
    ]
    return Case(BIND, "binding", 1, "default", bodies.__getitem__, 1, connections, requests_max=len(bodies))


def _node_names(count: int) -> list[str]:
    return [node_name(number) for number in range(count)]
