"""Text that others choose, wherever it may come in, and where it comes out: log, events, metrics,
conditions, replies.

A hostile workload sends line breaks, terminal escapes, text direction overrides, format strings and
very long text through every way in that there is: bodies of the verbs and of ``/v1/schedule``,
ledgers, error messages of the API server. What comes out is one bounded printable line each, and
the labels of the metrics are of fixed sets, whatever was sent.
"""

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from extender.kube.api import EVENTS, VPODS, ApiError, Conflict, Forbidden, Obj
from extender.kube.events import NOTE_BYTES_MAX
from extender.model import names
from extender.model.errors import WireError
from extender.service.http.describe import StateQuery
from extender.telemetry.logs import FIELDS, JsonFormatter
from extender.telemetry.metrics import Metrics
from extender.telemetry.one_line import LINE_CHARS_MAX, OneLineFormatter, one_line
from tests.support.builders import NS
from tests.support.service import World, bind_args, until
from tests.support.steps import result_of

HOSTILE: Final = {
    "line breaks": "x\nERROR root: y\r\n2026-01-01 00:00:00,000 INFO extender.service.app: replica "
    "leads",
    "terminal escapes": "\x1b[2J\x1b]0;owned\x07\x9b31m\x00\x08",
    "text direction": "\u202e\u2066gnp.exe\u2069\u200b\ufeff",
    "line separators": "a\u2028b\u2029c\x85d\x0be",
    "format strings": "%s %d %n {} {0.__class__} ${jndi:ldap://x} {{7*7}}",
    "metric text": '"} 1\nvreplica_scheduler_refusals_total{reason="forged',
    "very long": "é" * 50_000,
    "lone surrogates": "\ud800",
}

NAMED: Final[dict[str, frozenset[str]]] = {
    "name": frozenset({"vreplica-scheduler"}),
    "pool": frozenset({f"{NS}/dispatcher"}),
    "resource": frozenset(
        {"pods", "vpods", "nodes", "namespaces", "statefulsets", "adapterpools", "vreplicaquotas"}
    ),
    # Kinds that an AdapterPool declares: names by the pattern of its schema, and none in this
    # workload.
    "source": frozenset(),
    # Of clients, the names that the configuration allows.
    "client": frozenset(),
    # Namespaces, or values of their labels, which administrators make. No pool of this workload has
    # tenants (``http.test_tenant_gauges``).
    "tenant": frozenset(),
}
"""Label without a fixed set -> what it names in this workload. A new one needs a line here, and a
limit.
"""


def values_of(metrics: Metrics) -> dict[tuple[str, str], frozenset[str]]:
    """(metric without our prefix, label) -> all values that it may have, as it is declared."""
    return {
        (family.name.removeprefix("vreplica_scheduler_"), label.name): frozenset(label.values)
        or NAMED[label.name]
        for family in metrics.families
        for label in family.labels
    }


def labels_of(metrics: Metrics) -> Iterator[tuple[tuple[str, str], str]]:
    """((metric, label), value) of all that is exposed, without the buckets' bounds."""
    for family in text_string_to_metric_families(metrics.render().decode()):
        if family.name.endswith("_created"):
            continue  # when each counter began, with the same labels
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    yield (family.name.removeprefix("vreplica_scheduler_"), label), value


def only_ours(stream: io.StringIO) -> None:
    """Take away pytest's own handlers, which cannot send half a surrogate pair from one process to
    the other.
    """
    root = logging.getLogger()
    root.handlers = [
        one
        for one in root.handlers
        if isinstance(one, logging.StreamHandler) and one.stream is stream
    ]


class Log(io.StringIO):
    """The log as text; ``json``: the same records as lines of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.json: list[str] = []


class BothForms(OneLineFormatter):
    def __init__(self, log: Log) -> None:
        super().__init__("LINE %(levelname)s %(name)s: %(message)s")
        self._log = log

    def format(self, record: logging.LogRecord) -> str:
        self._log.json.append(JsonFormatter().format(record))
        return super().format(record)


@pytest.fixture
def logged() -> Iterator[Log]:
    """All that is logged, as the programs write it."""
    stream = Log()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(BothForms(stream))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@pytest.mark.looptime
@pytest.mark.parametrize("text", [pytest.param(text, id=what) for what, text in HOSTILE.items()])
async def test_nothing_of_a_hostile_workload_comes_out_as_more_than_text(text: str, logged: Log):
    only_ours(logged)
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.pod(1, {}, node="node-1")
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service:
        await asyncio.sleep(1)
        await forged_ledgers(world, text)
        await messages_of_the_api_server(world, text)
        await verbs(world, service, text)
        await asyncio.sleep(40)
        closed = values_of(service.metrics)
        for (metric, label), value in labels_of(service.metrics):
            assert value in closed[metric, label], f"{metric}{{{label}={value[:80]!r}}}"
        assert orjson.loads(orjson.dumps(result_of(service.state_steps(StateQuery()))))["leading"]
    await events_are_bounded_lines(world)
    await conditions_are_bounded_lines(world)
    lines_are_ours(logged.getvalue())
    objects_are_ours(logged.json)
    await world.check()


async def forged_ledgers(world: World, text: str) -> None:
    """By someone with the right, or with the policy away. What is no text to the API server cannot
    be stored there.
    """
    if "\ud800" in text:
        return
    entry = orjson.dumps({text[:1000]: 2, f"tenant/{text[:1000]}": 1}).decode()
    for ledger in (entry, text[:1000], orjson.dumps([text[:1000]]).decode()):
        await world.edit_ledger(1, ledger)
        await asyncio.sleep(2)
    await world.annotate(1, **{names.SLOTS_ANNOTATION: text[:1000]})
    await until(lambda: ledger_is_empty(world), timeout_s=20)


async def ledger_is_empty(world: World) -> bool:
    annotations = (await world.pod_object(1))["metadata"]["annotations"]
    wanted = {names.PLACEMENTS_ANNOTATION: "{}", names.SLOTS_ANNOTATION: "20"}
    return {key: annotations.get(key) for key in wanted} == wanted


async def messages_of_the_api_server(world: World, text: str) -> None:
    """A webhook or policy of somebody else chooses the message of a refusal."""
    errors = [
        Forbidden(403, "Forbidden", text),
        Conflict(409, text, text),
        ApiError(500, text, text),
        ApiError(418, text, text),
    ]
    for index, error in enumerate(errors):
        world.api.fail("patch", "pods", before=error)
        world.api.fail("patch", "vpods/status", before=error)
        await world.vpod(f"b{index}", 1)
        await asyncio.sleep(15)


async def verbs(world: World, service: Any, text: str) -> None:
    known = await world.pod_object(0)
    foreign = {
        "metadata": {**known["metadata"], "name": text, "namespace": text, "uid": text},
        "spec": {},
    }
    foreign["metadata"]["annotations"] = {
        names.PLACEMENTS_ANNOTATION: text,
        names.SLOTS_ANNOTATION: text,
    }
    foreign["metadata"]["labels"] = {names.POOL_LABEL: text}
    for pod in (known, foreign):
        for verb in (service.verbs.filter, service.verbs.prioritize):
            attempt(
                lambda verb=verb, pod=pod: verb(
                    dumped({"Pod": pod, "NodeNames": ["node-0", text[:200]]})
                )
            )
        victims = {text[:200]: {"Pods": [{"UID": text[:100]}], "NumPDBViolations": 0}}
        sent = {"Pod": pod, "NodeNameToMetaVictims": victims}
        attempt(lambda sent=sent: service.verbs.preempt(dumped(sent)))
    for error in (Forbidden(403, "Forbidden", text), ApiError(500, text, text)):
        await world.pod(2, {})
        await service.informers.catch_up()
        world.api.fail("bind", "pods", before=error)
        reply, _ = await service.verbs.bind(bind_args(await world.pod_object(2), "node-2"))
        said = orjson.loads(reply)["Error"]
        assert 0 < len(said) <= 1024
        await world.remove_pod(2)
    for field in ("PodName", "PodNamespace", "PodUID", "Node"):
        args = {"PodName": "p", "PodNamespace": NS, "PodUID": "u", "Node": "node-0"} | {field: text}
        try:
            said = (await service.verbs.bind(dumped(args)))[0].decode()
        except WireError as error:
            said = str(error)
        assert len(said) < 1000


def attempt(call: Any) -> None:
    """An answer or a WireError in a bounded sentence, and nothing else."""
    try:
        call()
        said = ""
    except WireError as error:
        said = str(error)
    assert len(said) < 1000


def dumped(value: Obj) -> bytes:
    """As JSON of a sender who does not care about surrogates."""
    return json.dumps(value).encode()


async def events_are_bounded_lines(world: World) -> None:
    page = await world.cluster.list_page(EVENTS)
    assert page.items
    for event in page.items:
        note = event["note"]
        assert len(note.encode()) <= NOTE_BYTES_MAX
        assert not re.search(
            r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b\ufeff]", note
        ), note
        assert re.fullmatch(r"[A-Za-z]{1,128}", event["reason"])
        assert re.fullmatch(r"[a-z0-9.-]{1,253}", event["metadata"]["name"])


async def conditions_are_bounded_lines(world: World) -> None:
    for vpod in (await world.cluster.list_page(VPODS)).items:
        for condition in vpod.get("status", {}).get("conditions", []):
            message = condition["message"]
            assert len(message) <= 1024
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", message), message


def lines_are_ours(log: str) -> None:
    for line in log.splitlines():
        assert line.startswith(("LINE ", "    ")), line[:200]
        assert line.isprintable()
        assert len(line) < LINE_CHARS_MAX + 100
    assert "LINE INFO extender.service.app: replica leads" not in log


ABOUT: Final = re.compile(r"(pool|vpod|pod) ([a-z0-9.-]+/[a-z0-9.-]+)\b")


def objects_are_ours(lines: list[str]) -> None:
    """Each record is one object with our keys, and says in a field what its message begins with."""
    assert lines
    for line in lines:
        assert line.isascii()
        assert line.isprintable()
        record = json.loads(line)
        assert set(record) <= {"ts", "level", "logger", "msg", "exception", *FIELDS}
        assert all(value.isprintable() for key, value in record.items() if key != "exception")
        if about := ABOUT.match(record["msg"]):
            assert record.get(about[1]) == about[2], record


class TestOneLine:
    @given(st.text(st.characters()))
    def test_any_text_is_one_bounded_printable_line(self, text: str):
        line = one_line(text)
        assert line.isprintable()
        assert line.splitlines() in ([line], [])
        assert one_line(line) == line

    def test_very_long_text_has_an_end_that_says_how_long_it_was(self):
        line = one_line("\n" * 100_000)
        assert len(line) < LINE_CHARS_MAX + 50
        assert line.endswith("(100000 characters)")

    def test_a_traceback_cannot_begin_a_line_of_its_own(self):
        try:
            raise ValueError("x\nLINE INFO root: forged\x1b[0m")
        except ValueError:
            record = logging.LogRecord("a", logging.ERROR, "f", 1, "broken", (), sys.exc_info())
        first, *rest = OneLineFormatter("LINE %(levelname)s %(message)s").format(record).split("\n")
        assert first == "LINE ERROR broken"
        assert all(line.startswith("    ") and line.isprintable() for line in rest)
        assert any(r"forged\x1b[0m" in line for line in rest)


@pytest.mark.looptime
async def test_every_label_of_a_services_metrics_has_its_closed_set_or_names_what_operators_make():
    """Also those without a sample yet: what has labels is what is declared, not what has happened
    to happen.
    """
    world = await World.create()
    async with world.serving() as service:
        for family in service.metrics.families:
            for label in family.labels:
                assert bool(label.values) != bool(label.description), f"{family.name}: {label.name}"
                assert label.values or label.name in NAMED, f"{family.name}: {label.name}"
        declared = {family.name for family in service.metrics.families}
        for collector in service.metrics.registry._collector_to_names:
            name = getattr(collector, "_name", None)
            assert name is None or name in declared, f"{name} has gone round the declarations"
