"""Each kind of line is read as it was written, and anything else is refused with its place."""

import json

import pytest

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
    entry_of_change,
)
from extender.whatif.recording.lines import FORMAT_VERSION, line_from, line_to_json
from tests.support.builders import POOL, a_node, a_vpod

MOVE = Move("tenant/a", "d-1", "d-0", 2, MoveReason.COMPACTION)
LINES: list[Line] = [
    Header("replica", 1.5, "0.1.0", "r-1", "r-2", "r-1-1", ("default", "ha")),
    Header("cluster", 0.0),
    Synced(7),
    Gap("too slow"),
    *(
        Entry(1.25, 9, what)
        for what in (
            Put(a_node(labels={"topology.kubernetes.io/zone": "z0"})),
            Put(a_vpod("a", 2, {0: 2}, source="x.y")),
            Gone("Pod", "ns/d-0"),
            Reserve(
                POOL,
                "tenant/a",
                "placer:1",
                {"d-0": Share(2, 3), "d-1": Share(0, 1), "d-2": Share(1, 1, (("cpu", 4),))},
                31.5,
            ),
            Release(POOL, "tenant/a", "placer:1"),
            Expire(30.0),
            Forget(("ns/d-0",)),
            Close(POOL, 0b1010),
            Close(POOL, 0b1010, 0b1000),
            Close(POOL, 0),
            Abandon(POOL, frozenset({"d-1", "d-0"})),
            Decided(Cause.GONE, POOL, "tenant/a", 0, 1, {}, 0),
            Decided(
                Cause.MOVE,
                POOL,
                "tenant/a",
                8,
                2,
                {"d-0": 3},
                5,
                "InsufficientSlots",
                "a plugin failed",
                (("no free slots", 2),),
                (MOVE,),
                (MOVE, MOVE),
                3,
            ),
        )
    ),
]


def _name(line: Line) -> str:
    return f"{LINES.index(line)} {type(getattr(line, 'what', line)).__name__}"


@pytest.mark.parametrize("line", LINES, ids=_name)
def test_a_line_reads_back(line: Line):
    assert line_from(json.loads(json.dumps(line_to_json(line))), "line 1") == line


def test_what_a_later_version_adds_to_a_line_is_ignored():
    written = {**line_to_json(Entry(1.0, 2, Expire(3.0))), "more": {"of": "it"}}
    assert line_from(written, "line 1") == Entry(1.0, 2, Expire(3.0))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param([], "line 7: is no JSON object", id="a list"),
        pytest.param({}, "line 7: at: must be seconds", id="nothing"),
        pytest.param({"at": 1.0, "seq": 1}, "none of header, synced, gap, put", id="no kind"),
        pytest.param(
            {"at": 1.0, "seq": 1, "burn": {}}, "none of header, synced, gap, put", id="another kind"
        ),
        pytest.param(
            {"header": {}}, "header.format: must be vreplica-recording", id="another format"
        ),
        pytest.param(
            {
                "header": {
                    "format": "vreplica-recording",
                    "formatVersion": FORMAT_VERSION + 1,
                    "at": 0,
                }
            },
            f"{FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}",
            id="a newer format",
        ),
        pytest.param(
            {"at": "now", "seq": 1, "expire": {"now": 1}}, "at: must be seconds", id="no time"
        ),
        pytest.param(
            {"at": 1e300, "seq": 1, "expire": {"now": 1}},
            "at: must be seconds, from 0 to",
            id="no end of time",
        ),
        pytest.param(
            {"at": 1, "seq": -1, "expire": {"now": 1}}, "seq: must be a count", id="below zero"
        ),
        pytest.param(
            {"at": 1, "seq": 1, "expire": {"now": True}},
            "now: must be seconds",
            id="true is no number",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "put": {"kind": "Secret"}},
            "not a kind that is recorded",
            id="Secret",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "put": {"kind": "VPod", "metadata": {"name": "a"}}},
            "spec.poolRef.name: is required",
            id="a vpod without a pool",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "gone": {"kind": "Secret", "key": "a"}},
            "gone.kind: must be one of",
            id="gone",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "gone": {"kind": "Pod"}},
            "key: is required",
            id="gone without a name",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "close": {"pool": "p", "ordinals": [10**9]}},
            "close.ordinals: must not exceed 100000",
            id="an ordinal that would fill the memory",
        ),
        pytest.param(
            {
                "at": 1,
                "seq": 1,
                "reserve": {
                    "pool": "p",
                    "vpod": "v",
                    "owner": "o",
                    "shares": {"d": 3},
                    "expires": 1,
                },
            },
            "reserve.shares.d: must be",
            id="a share that is none",
        ),
        pytest.param(
            {"at": 1, "seq": 1, "decision": {"pool": "p", "vpod": "v", "cause": "whim"}},
            "line 7: cannot be read: 'whim' is not a valid Cause",
            id="another cause",
        ),
    ],
)
def test_anything_else_is_refused_with_its_place(document: object, message: str):
    with pytest.raises(InvalidObject) as caught:
        line_from(document, "line 7")
    assert str(caught.value).startswith("line 7") or "VPod" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        pytest.param(None, a_vpod(), Put(a_vpod()), id="new"),
        pytest.param(
            a_vpod(vreplicas=1), a_vpod(vreplicas=2), Put(a_vpod(vreplicas=2)), id="changed"
        ),
        pytest.param(a_vpod(), a_vpod(resource_version="7"), None, id="nothing that counts"),
        pytest.param(a_vpod(), None, Gone("VPod", "tenant/a"), id="gone"),
    ],
)
def test_only_what_counts_is_a_change(old, new, what):
    assert entry_of_change(1.0, 2, old, new) == (Entry(1.0, 2, what) if what is not None else None)
