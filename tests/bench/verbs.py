"""``verbs``: filter, prioritize, preempt and bind over HTTP, each beside a no-op extender in Go and
one in aiohttp.

Theory of operation. ``vreplica serve`` as shipped reads a settled cluster from a stand-in API
server; the peers know nothing and decide nothing. The pod that is asked about comes back: it
carries vreplicas, so filter and prioritize have all their work, by the default profile and by
``ha``, whose zone rule is hard; nodes declare slots, so these are added up too. Bind binds a pod of
its own each time, against an API server that answers at once. Two peers' bind answers ok without
one; a third, ``goBinds``, is the one in Go that writes the Binding to such an API server of its
own, and nothing else.

kube-scheduler sends one filter at a time and prioritizes one pod at a time, so those are measured
down one connection; several connections show what stands in line. Bytes are kube-scheduler's
(``requests``), the peers are asked in turn (``latency``).

With names, each size is measured with three kinds of lists (``lists``), by verb, and as
kube-scheduler asks for one pod: filter, then prioritize about what filter has passed
(``filter+prioritize``); at the largest size also with nodes that are refused. That pair with a
reordered or another list is what a pod costs kube-scheduler; the same list again, and prioritize
about a list that no filter has passed, show where that goes. ``filter+prioritize+bind`` is the
whole of a pod: each is another one, and the state has changed with the one before.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import orjson

from tests.bench import requests
from tests.bench.latency import OURS, Sample, capitalized, cpu_seconds, figures, interleaved
from tests.bench.options import Options
from tests.bench.peers.build import noop_program
from tests.bench.peers.start import (
    Running,
    kubeconfig_for,
    processes,
    start_aiohttp,
    start_noop,
    start_service,
    start_stand_in,
)
from tests.bench.population import Pool, Population
from tests.bench.requests import BIND, FILTER, PRIORITIZE
from tests.bench.result import Result, Value
from tests.bench.verb_cases import CYCLE, FULL, PAIR, REFUSED, SHORT, Case, cases
from tests.bench.wire import Connections

GO: Final = "go"
AIOHTTP: Final = "aiohttp"
GO_BINDS: Final = "goBinds"
IDLE_WITHIN_S: Final = 30.0
IDLE_LOOK_S: Final = 0.5
IDLE_SHARE: Final = 0.1
"""Of a processor."""
CASE_SECONDS_MAX: Final = 40.0
"""A case ends then with the requests that it has."""


def bench(options: Options) -> Iterator[Result]:
    """A result for each verb, size and form of body."""
    scale = SHORT if options.short else FULL
    program = noop_program()
    dispatcher = Pool("dispatcher", scale.bound, scale.pending, scale.vpods)
    strict = Pool("receiver", bound=60, pending=20, vpods=150, profile="ha")
    with processes() as programs:
        population = Population(scale.nodes, (dispatcher, strict), full=max(REFUSED))
        api, another = start_stand_in(programs, population), start_stand_in(programs, population)
        peers = {
            OURS: start_service(programs, api),
            GO: start_noop(programs, program),
            AIOHTTP: start_aiohttp(programs),
            GO_BINDS: start_noop(programs, program, kubeconfig_for(programs, another)),
        }
        _wait_until_idle(peers[OURS].process.pid)
        for case in cases(scale, dispatcher, strict, options.seed):
            asked = {
                name: peer
                for name, peer in peers.items()
                if name != GO_BINDS or case.verb in (BIND, CYCLE)
            }
            yield measured(case, asked, scale.rounds)


def _wait_until_idle(pid: int) -> None:
    """The service is ready before it has looked at all that it was told of; that work is no
    request's.
    """
    until = time.monotonic() + IDLE_WITHIN_S
    spent = cpu_seconds(pid)
    while time.monotonic() < until:
        time.sleep(IDLE_LOOK_S)
        now = cpu_seconds(pid)
        if spent is None or now is None or now - spent < IDLE_SHARE * IDLE_LOOK_S:
            return
        spent = now


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
        parts: dict[str, list[list[float]]] = {name: [] for name in peers}
        if case.verb in (PAIR, CYCLE):
            asks = {
                name: _ask_in_turn(case, connections, parts[name], case.passed_by(name))
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
    if case.verb in (PAIR, CYCLE):
        found |= _figures_of_parts(case.verb.split("+"), parts, len(samples[OURS].seconds))
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


def _ask_in_turn(
    case: Case, connections: Connections, parts: list[list[float]], wanted: int
) -> Callable[[], list[float]]:
    """Filter, then prioritize about what it has passed, in its order, then bind in a cycle;
    ``parts`` gets the seconds of each.
    """
    pod_of, position = case.pod, 0
    assert pod_of is not None

    def ask() -> list[float]:
        nonlocal position
        pod = pod_of(position)
        first = requests.whole(connections.host, FILTER, case.body(position))
        answer, filter_s = connections.exchange(first)
        passed = orjson.loads(answer)["NodeNames"]
        assert len(passed) == wanted, f"{len(passed)} of {wanted} nodes pass"
        second = requests.whole(connections.host, PRIORITIZE, requests.of_names(pod, passed))
        answer, prioritize_s = connections.exchange(second)
        scored = len(orjson.loads(answer))
        assert scored == wanted, f"{scored} of {wanted} nodes have a score"
        taken = [filter_s, prioritize_s]
        if case.verb == CYCLE:
            third = requests.of_binding(pod, passed[position % len(passed)])
            answer, bind_s = connections.exchange(requests.whole(connections.host, BIND, third))
            assert not orjson.loads(answer)["Error"], answer
            taken.append(bind_s)
        position += 1
        parts.append(taken)
        return [sum(taken)]

    return ask


def _figures_of_parts(
    verbs: Sequence[str], parts: Mapping[str, list[list[float]]], count: int
) -> dict[str, Value]:
    """Medians of each verb of the last ``count`` turns, ours, and ours by the peers'."""
    found: dict[str, Value] = {}
    for index, verb in enumerate(verbs):
        p50_ms = {
            name: Sample([turn[index] for turn in turns[-count:]]).percentile_ms(50)
            for name, turns in parts.items()
        }
        found[f"{verb}P50Ms"] = p50_ms[OURS]
        for name, theirs in p50_ms.items():
            if name != OURS:
                found[f"{verb}P50To{capitalized(name)}Ratio"] = p50_ms[OURS] / theirs
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
