"""Percentiles, turns, where answers end, and what figures are called. Nothing is timed here."""

import json
import math
import shutil
import socket
import threading

import pytest

from tests.bench.latency import OURS, Sample, figures, interleaved, percentile
from tests.bench.options import Options
from tests.bench.peers import build
from tests.bench.population import Pool, Population
from tests.bench.registry import BENCHES, Skipped
from tests.bench.result import Result
from tests.bench.stand_in import arguments_of, pool_from
from tests.bench.throughput import Bindings
from tests.bench.wire import BadAnswer, Connections, body_of, is_whole

PLAIN = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 12\r\n\r\n{"Error":""}'
)
CHUNKED = (
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"Error"\r\n4\r\n:""}\r\n0\r\n\r\n'
)


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1), (50.5, 51)]
)
def test_a_percentile_is_a_value_that_was_seen(percent, expected):
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_a_percentile_of_one_is_that_and_of_none_is_nan():
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))


def test_peers_are_asked_in_turn_and_the_first_rounds_do_not_count():
    asked: list[str] = []

    def ask(name: str):
        def one() -> list[float]:
            asked.append(name)
            return [float(len(asked))]

        return one

    samples = interleaved({"a": ask("a"), "b": ask("b")}, rounds=20, seconds_max=60.0)
    assert asked == ["a", "b"] * 22
    assert len(samples["a"].seconds) == len(samples["b"].seconds) == 20
    assert min(samples["a"].seconds) == 5.0


def test_figures_have_units_and_ratios_to_each_peer():
    found = figures(
        {
            OURS: Sample([0.001] * 3, 3.0),
            "go": Sample([0.002] * 3, 2.0),
            "aiohttp": Sample([0.004] * 3),
        }
    )
    assert found == {
        "requests": 3,
        "p50Ms": 1.0,
        "p99Ms": 1.0,
        "goP50Ms": 2.0,
        "goP99Ms": 2.0,
        "aiohttpP50Ms": 4.0,
        "aiohttpP99Ms": 4.0,
        "p50ToGoRatio": 0.5,
        "p99ToGoRatio": 0.5,
        "p50ToAiohttpRatio": 0.25,
        "p99ToAiohttpRatio": 0.25,
        "cpuMs": 3.0,
        "goCpuMs": 2.0,
        "aiohttpCpuMs": None,
        "cpuToGoRatio": 1.5,
        "cpuToAiohttpRatio": None,
    }


def test_a_line_of_json_has_the_bench_the_case_and_the_figures():
    line = Result(
        "verbs", {"verb": "filter", "nodes": 5000}, {"p50Ms": 1.5, "toGoRatio": None}
    ).json_line()
    assert json.loads(line) == {
        "bench": "verbs",
        "verb": "filter",
        "nodes": 5000,
        "p50Ms": 1.5,
        "toGoRatio": None,
    }


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_an_answer_is_whole_at_its_last_byte_and_not_before(answer):
    assert not any(is_whole(answer[:length]) for length in range(len(answer)))
    assert is_whole(answer)
    assert body_of(answer) == b'{"Error":""}'


def test_an_answer_other_than_200_is_refused():
    with pytest.raises(BadAnswer, match="503"):
        body_of(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy")


def test_several_requests_go_down_as_many_connections_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        both = threading.Barrier(2, timeout=5.0)

        def answer(connection: socket.socket) -> None:
            with connection:
                for _ in range(2):
                    connection.recv(100)
                    both.wait()  # passes only if the other one has been asked too
                    connection.sendall(PLAIN)

        with Connections(f"127.0.0.1:{listener.getsockname()[1]}", 2) as connections:
            threads = [
                threading.Thread(target=answer, args=(listener.accept()[0],)) for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for _ in range(2):
                answers = connections.exchange_all([b"one", b"two"])
                assert [body for body, _ in answers] == [b'{"Error":""}'] * 2
                assert all(seconds > 0 for _, seconds in answers)
            for thread in threads:
                thread.join()


def test_a_rate_is_from_the_first_binding_to_the_last():
    bindings = Bindings(wanted=3)
    versions = [("a", "", 0.0), ("a", "n", 10.0), ("b", "n", 11.0), ("a", "n", 12.0)]
    for uid, node, now in versions:
        bindings.see({"metadata": {"uid": uid}, "spec": {"nodeName": node}}, now)
    assert not bindings.all_bound.is_set()
    bindings.see({"metadata": {"uid": "c"}, "spec": {"nodeName": "n"}}, 14.0)
    assert bindings.all_bound.is_set()
    assert bindings.pods_per_second == 0.5


def test_a_stand_in_is_told_its_population_on_the_command_line():
    pool = Pool("dispatcher", 3, 2, 5, "ha")
    nodes, full, described = arguments_of(Population(7, (pool,), full=2))
    assert (nodes, full) == ("--nodes=7", "--full=2")
    assert pool_from(described.removeprefix("--pool=")) == pool


def test_without_go_the_peer_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(Skipped, match="Go is not installed"):
        build.noop_program()
    with pytest.raises(Skipped, match="Go is not installed"):
        list(BENCHES["verbs"](Options(short=True)))


def test_a_peer_that_is_built_is_not_built_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = tmp_path / "vreplica-scheduler" / "bench" / build.build_key() / "noop"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert build.noop_program() == program
