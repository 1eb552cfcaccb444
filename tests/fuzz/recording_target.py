"""``vreplica replay FILE``: a recording of anybody's, from its lines to the report."""

import argparse
import contextlib
import io
from typing import Final

import orjson

from extender.cli.recordings.replay import replay_files
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.whatif.recording.entries import (
    Abandon,
    Cause,
    Close,
    Decided,
    Entry,
    Expire,
    Forget,
    Gap,
    Gone,
    Header,
    Line,
    Put,
    Release,
    Reserve,
    Synced,
)
from extender.whatif.recording.lines import line_to_json
from tests.fuzz.file_targets import FileTarget
from tests.fuzz.findings import outcome_of
from tests.fuzz.target import any_json
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod

_OBJECTS: Final = (
    a_node("node-0", "z0", labels={"topology.kubernetes.io/zone": "z0"}),
    a_node("node-1", "z1", labels={"topology.kubernetes.io/zone": "z1"}),
    a_stateful_set(2),
    a_pool(4, max_pods=5, scale_down_period_s=2),
    a_pod(0, {"tenant/a": 2}, slots=4),
    a_pod(1, node="node-1", slots=4),
    a_vpod("a", 3, {0: 2}),
    a_vpod("b", 2, weight=2),
)
_MOVE: Final = Move("tenant/a", "dispatcher-0", "dispatcher-1", 1, MoveReason.DRAIN)


def _lines(source: str) -> list[Line]:
    return [
        Header(source, 1.0),
        *(Entry(1.0, 0, Put(obj)) for obj in _OBJECTS),
        Synced(0),
        Entry(
            1.5,
            1,
            Decided(Cause.PLACE, POOL, "tenant/a", 3, 1, {"dispatcher-0": 2, "dispatcher-1": 1}, 0),
        ),
        Entry(1.5, 2, Reserve(POOL, "tenant/a", "placer:1", {"dispatcher-1": Share(1)}, 31.5)),
        Entry(2.5, 3, Put(a_vpod("a", 3, {0: 2, 1: 1}))),
        Entry(2.5, 4, Release(POOL, "tenant/a", "placer:1")),
        Entry(3.0, 5, Close(POOL, 0b10)),
        Entry(
            3.0,
            6,
            Decided(Cause.MOVE, POOL, "tenant/a", 3, 1, {"dispatcher-1": 3}, 0, asked=(_MOVE,)),
        ),
        Gap("too slow"),
        Entry(4.0, 7, Abandon(POOL, frozenset({"dispatcher-0"}))),
        Entry(4.0, 8, Expire(40.0)),
        Entry(4.0, 9, Forget(("knative-eventing/dispatcher-0",))),
        Entry(9.0, 10, Gone("Node", "node-1")),
        Entry(9.0, 11, Gone("VPod", "tenant/b")),
        Entry(9.0, 12, Decided(Cause.GONE, POOL, "tenant/b", 0, 2, {}, 0)),
    ]


class RecordingTarget(FileTarget):
    """A list of JSON is a line each; any other input is the file as it is."""

    name = "recording"
    slow_s = 2.0
    inputs_share = 0.25

    async def open(self) -> None:
        """See Target."""
        await super().open()
        self.seeds = [
            orjson.dumps([line_to_json(line) for line in _lines(of)])
            for of in ("replica", "cluster")
        ]
        self.words = ("ha", "pack", "spread", "schedule", "100000", "assumed", "source")

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            document = any_json(data)
        except ValueError:
            document = None
        if isinstance(document, list):
            data = b"".join(_line(item) for item in document)
        self.path.write_bytes(data)
        options = argparse.Namespace(
            files=[str(self.path)],
            profile="spread",
            config="",
            set=[("maxPods", 3)],
            first=3,
            check=False,
            output="json",
        )
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            try:
                replay_files(options)
            except InvalidObject as error:
                return outcome_of(error, known=str(self.path))
        report = any_json(shown.getvalue().encode())
        assert isinstance(report, dict)
        decisions = report["decisions"]
        return f"replayed {min(decisions['compared'], 3)} {min(decisions['differing'], 2)}"


def _line(item: object) -> bytes:
    try:
        return orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE)
    except (TypeError, ValueError):
        return b"[]\n"
