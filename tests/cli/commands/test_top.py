"""``vreplica top``: what it looks like, and what it does when a key is pressed."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import pytest
from rich.console import Console

import extender
from extender.cli.top.sorting import sort_pods
from extender.cli.top.view import View, rates_between
from tests.support.service import a_world, until

OVERVIEW = {
    "at": "2026-01-01T00:02:00Z",
    "identity": "replica-1",
    "leader": "replica-1",
    "leading": True,
    "pools": [
        {
            "name": "knative-eventing/dispatcher",
            "profile": "ha",
            "pods": 3,
            "schedulablePods": 2,
            "slots": 60,
            "usedSlots": 44,
            "freeSlots": 6,
            "pendingVReplicas": 7,
            "vpods": 12,
            "closedPods": 1,
            "drainingPods": 1,
            "overcommittedPods": 0,
        }
    ],
    "pods": [
        {
            "name": "dispatcher-1",
            "pool": "p",
            "node": "n1",
            "zone": "z1",
            "slots": 20,
            "usedSlots": 21,
            "freeSlots": -1,
            "vpods": 3,
            "state": "overcommitted",
        },
        {
            "name": "dispatcher-0",
            "pool": "p",
            "node": "n0",
            "zone": "z0",
            "slots": 20,
            "usedSlots": 5,
            "freeSlots": 15,
            "vpods": 9,
            "state": "",
        },
    ],
    "podsNotListed": 4,
    "waiting": [
        {
            "vpod": "team/a",
            "pool": "p",
            "vreplicas": 8,
            "pending": 7,
            "since": "2026-01-01T00:00:30Z",
            "reason": "InsufficientSlots",
            "message": "3 [red]no free slots\x1b[2J\nx",
        },
    ],
    "waitingNotListed": 0,
}


def shown(view: View, *, height: int = 40, width: int = 140) -> str:
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as captured:
        console.print(view.render(height))
    return captured.get()


def test_it_says_who_leads_what_is_full_and_who_waits_how_long():
    text = shown(View(OVERVIEW, {"decisions": 2.5, "binds": 0.0, "moved": 0.25}))
    assert "replica-1 leads  decisions 2.5/s  binds 0.0/s  moved 0.2/s" in text
    assert "knative-eventing/dispatcher" in text
    assert text.index("dispatcher-1") < text.index("dispatcher-0"), "by urgency"
    assert "overcommitted" in text
    assert "and 4 more" in text
    assert "90s" in text
    assert "InsufficientSlots 3 [red]no free slots?[2J?x" in text, "what somebody wrote is text"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"shadow": True}, "replica-1 (shadow mode)", id="shadow mode"),
        pytest.param(
            {"leading": False, "leader": "replica-2"}, "leader replica-2", id="another leads"
        ),
        pytest.param({"identity": "", "leader": ""}, "leader not known", id="nobody is known to"),
    ],
)
def test_who_it_is(more: dict[str, object], said: str):
    assert said in shown(View({**OVERVIEW, **more}))


def test_paused_and_out_of_reach_are_told():
    text = shown(View(OVERVIEW, paused=True, problem="http://x does not answer"))
    assert "PAUSED" in text
    assert "http://x does not answer" in text


def test_it_fits_the_terminal():
    pods = [{**OVERVIEW["pods"][1], "name": f"d-{i}"} for i in range(100)]  # type: ignore[index]
    waiting = [{**OVERVIEW["waiting"][0], "vpod": f"t/v{i}"} for i in range(100)]  # type: ignore[index]
    many = {**OVERVIEW, "pods": pods, "waiting": waiting}
    for height in (24, 40, 80):
        assert len(shown(View(many), height=height).splitlines()) <= height


def test_at_80_columns_names_and_numbers_are_whole_and_empty_columns_are_not_there():
    pool = "knative-eventing/dispatcher"
    named = {"pool": pool, "name": "kafka-broker-dispatcher-12", "node": "n" * 60}
    pods = [{**OVERVIEW["pods"][1], **named}]  # type: ignore[index]
    waiting = [{**OVERVIEW["waiting"][0], "pool": pool, "vpod": "team-a/orders-of-yesterday"}]  # type: ignore[index]
    pools = [{**OVERVIEW["pools"][0], "profile": "default", "closedPods": 0, "drainingPods": 0}]  # type: ignore[index]
    lines = shown(
        View({**OVERVIEW, "pools": pools, "pods": pods, "waiting": waiting}, interactive=False),
        width=80,
    )
    assert "kafka-broker-dispatcher-12 nnnn" in lines
    assert "team-a/orders-of-yesterday " in lines
    assert f"{pool} default " in lines
    assert "POOL                        PROFILE PODS READY SLOTS USED FREE PENDING VPODS" in lines
    assert "LEAVING" not in lines
    assert "STATE" not in lines
    assert lines.count("POOL") == 1
    assert max(map(len, lines.splitlines())) <= 80


def test_what_adapters_have_still_to_do_has_a_column_where_there_is_something():
    pods = [{**OVERVIEW["pods"][0], "handOver": "2 to drain, unacknowledged"}]  # type: ignore[index]
    assert "HAND-OVER" not in shown(View(OVERVIEW, interactive=False))
    lines = shown(View({**OVERVIEW, "pods": pods}, interactive=False), width=160)
    assert "HAND-OVER" in lines
    assert "2 to drain, unacknowledged" in lines


def test_of_several_pools_every_pod_and_vpod_says_whose_it_is():
    pools = [{**OVERVIEW["pools"][0], "name": name} for name in ("p", "q")]  # type: ignore[index]
    assert shown(View({**OVERVIEW, "pools": pools})).count("POOL") == 3


def test_a_pool_that_does_not_exist_says_so_where_its_profile_would_stand():
    pools = [{**OVERVIEW["pools"][0], "name": "p/gone", "found": False, "profile": ""}]  # type: ignore[index]
    (line,) = [
        line for line in shown(View({**OVERVIEW, "pools": pools})).splitlines() if "p/gone" in line
    ]
    assert line.startswith("p/gone (does not exist) ")


def test_the_head_has_the_time_of_day_and_a_short_identity():
    host = "vm_d95bafc8f2a4d27bdcf4bb99f4bea973"
    (head, *_) = shown(View({**OVERVIEW, "identity": host}), width=80).splitlines()
    assert head.startswith("2026-01-01 00:02:00 UTC  vm_d95baf\u2026")
    assert head.endswith("leads")


def test_an_answer_of_another_version_shows_what_there_is():
    assert "pools" in shown(View({"pools": [{"name": "a/b"}, "nonsense"], "pods": None}))


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("urgency", "dispatcher-1"),
        ("used", "dispatcher-1"),
        ("free", "dispatcher-0"),
        ("vpods", "dispatcher-0"),
        ("name", "dispatcher-0"),
    ],
)
def test_pods_are_sorted(sort: str, first: str):
    pods = OVERVIEW["pods"]
    assert isinstance(pods, list)
    assert sort_pods(pods, sort)[0]["name"] == first


def test_s_goes_through_all_orders():
    view, seen = View(OVERVIEW), []
    for _ in range(5):
        seen.append(view.sort)
        view = view.sorted_next()
    assert sorted(seen) == ["free", "name", "urgency", "used", "vpods"]
    assert view.sort == seen[0]


def test_rates_are_between_two_looks_and_a_restart_counts_from_nothing():
    before, after = (
        {"counters": {"decisions": 10, "binds": 4}},
        {"counters": {"decisions": 30, "binds": 0}},
    )
    assert rates_between(before, after, 4.0) == {"decisions": 5.0, "binds": 0.0}
    assert rates_between({}, after, 4.0) == {}
    assert rates_between(before, after, 0.0) == {}


# -- the command -----------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(extender.__file__).parents[1]), "TERM": "xterm"}


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_once_or_without_a_terminal_it_prints_what_the_replica_says():
    world = await a_world(0)
    async with world.serving(serve=True) as service:
        outputs = []
        for more in (("--once", "-o", "json"), ("--once",), ()):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "extender.cli.main",
                "top",
                "--server",
                service.server.url,
                *more,
                stdout=asyncio.subprocess.PIPE,
                env=environment(),
            )
            out, _ = await process.communicate()
            assert process.returncode == 0
            outputs.append(out.decode())
    assert json.loads(outputs[0])["identity"] == service.identity
    assert all("knative-eventing/dispatcher" in table for table in outputs[1:])


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_on_a_terminal_it_lives_until_q_and_leaves_it_as_it_was():
    world = await a_world(0)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    before = termios.tcgetattr(theirs)
    os.set_blocking(ours, False)
    said = bytearray()

    def read() -> bytes:
        with contextlib.suppress(OSError):
            said.extend(os.read(ours, 65536))
        return bytes(said)

    async def has(text: bytes) -> bool:
        return text in read()

    async with world.serving(serve=True) as service:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "extender.cli.main",
            "top",
            "--server",
            service.server.url,
            "--interval",
            "1s",
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
        )
        await until(lambda: has(b"pods by urgency"), timeout_s=20)
        await until(lambda: has(b"decisions"), timeout_s=10)
        os.write(ours, b"s")
        await until(lambda: has(b"pods by used"), timeout_s=5)
        os.write(ours, b"p")
        await until(lambda: has(b"PAUSED"), timeout_s=5)
        os.write(ours, b"xq")
        async with asyncio.timeout(10):
            status = await process.wait()
    assert status == 0
    assert b"Traceback" not in read()
    assert termios.tcgetattr(theirs)[3] == before[3], "keys are shown again"
    os.close(ours)
    os.close(theirs)
