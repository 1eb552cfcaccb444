"""Documents: what is read, what is refused, and with which words."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from vreplica_adapter.fields import (
    DOCUMENT_BYTES_MAX,
    INDEXES_MAX,
    INTEGER_MAX,
    MEMBERS_MAX,
    WireError,
    read_indexes,
    write_indexes,
)
from vreplica_adapter.wire import (
    Acknowledgement,
    Assignment,
    PlacedPod,
    Placements,
    ShareDocument,
    State,
    read_acknowledgement,
    read_answer,
    read_assignment,
    read_placements,
    write_acknowledgement,
    write_assignment,
    write_placements,
)

ORDERS = "team-a/orders"
FROM_THE_CONTRACT = """
{"generation": 42, "pod": "adapters/dispatcher-3", "uid": "u",
 "shares": {
   "team-a/orders": {"vreplicas": 3, "weight": 1, "of": 8, "indexes": "0-1,5", "epoch": 7,
                     "state": "Serve"},
   "team-b/clicks": {"vreplicas": 2, "weight": 2, "of": 12, "epoch": 3, "state": "Drain",
                     "peer": "dispatcher-1", "deadline": "2026-12-01T10:00:30Z",
                     "intent": "Rebalance"}}}
"""


def document(**fields) -> bytes:
    return json.dumps({"generation": 1, "uid": "u", "shares": {}} | fields).encode()


def with_share(**fields) -> bytes:
    """A document with one share, in which ``fields`` differ; None takes one away."""
    share = {"vreplicas": 3, "state": "Serve"} | fields
    return document(shares={ORDERS: {k: v for k, v in share.items() if v is not None}})


def test_the_contracts_own_example_is_read():
    assert read_assignment(FROM_THE_CONTRACT.encode()) == Assignment(
        generation=42,
        uid="u",
        pod="adapters/dispatcher-3",
        shares={
            ORDERS: ShareDocument(State.SERVE, 3, 1, 8, (0, 1, 5), 7),
            "team-b/clicks": ShareDocument(
                State.DRAIN,
                2,
                2,
                12,
                None,
                3,
                "dispatcher-1",
                datetime(2026, 12, 1, 10, 0, 30, tzinfo=UTC),
                "Rebalance",
            ),
        },
    )


def test_what_a_newer_service_adds_is_ignored():
    read = read_assignment(with_share(colour="red", intent="Newer"))
    assert read.shares[ORDERS].intent == "Newer"
    assert read_assignment(document(colour={"deep": [1]})).shares == {}


@pytest.mark.parametrize("value", [3, 0.5], ids=["whole", "fraction"])
def test_a_lease_is_a_number_of_seconds(value):
    assert read_assignment(document(leaseSeconds=value)).lease_s == value


HUGE = "9" * 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(b"", "the document is not JSON", id="nothing"),
        pytest.param(b"[]", "the document must be an object", id="a list"),
        pytest.param(b'{"generation": NaN}', "the document is not JSON", id="NaN"),
        pytest.param(b"[" * 100_000, "the document is not JSON", id="deep"),
        pytest.param(b"\xff", "the document is not JSON", id="no text"),
        pytest.param(b" " * (DOCUMENT_BYTES_MAX + 1), "longer than", id="too long"),
        pytest.param(b'{"shares": {}, "uid": "u"}', "generation is missing", id="no generation"),
        pytest.param(document(generation="1"), "generation must be an integer", id="text"),
        pytest.param(document(generation=True), "generation must be an integer", id="bool"),
        pytest.param(document(generation=1.0), "generation must be an integer", id="fraction"),
        pytest.param(document(generation=-1), "generation must be from 0", id="negative"),
        pytest.param(document(generation=INTEGER_MAX + 1), "generation must be from 0", id="large"),
        pytest.param(document(uid=""), "uid must not be empty", id="no uid"),
        pytest.param(document(uid="u" * 600), "uid must have at most", id="long uid"),
        pytest.param(document(shares=[]), "shares must be an object", id="shares a list"),
        pytest.param(document(shares={"a": {}}), '"a" is not a vpod', id="no namespace"),
        pytest.param(document(shares={"a/b/c": {}}), '"a/b/c" is not a vpod', id="two slashes"),
        pytest.param(document(shares={"a/..": {}}), '"a/.." is not a vpod', id="a path"),
        pytest.param(document(shares={"a/b": 3}), 'shares["a/b"] must be an object', id="a number"),
        pytest.param(
            document(shares={f"a/{n}": {} for n in range(MEMBERS_MAX + 1)}),
            "shares must have at most 10000",
            id="too many shares",
        ),
        pytest.param(document(leaseSeconds=0), "leaseSeconds must be greater", id="no lease"),
        pytest.param(document(leaseSeconds="9"), "leaseSeconds must be a number", id="lease text"),
        pytest.param(
            document(leaseSeconds=0).replace(b": 0}", f": {HUGE}}}".encode()),
            "leaseSeconds must be a finite",
            id="an endless lease",
        ),
        pytest.param(
            document(leaseSeconds=0).replace(b": 0}", b": 1e999}"),
            "leaseSeconds must be a finite",
            id="an infinite lease",
        ),
        pytest.param(with_share(state=None), "state is missing", id="no state"),
        pytest.param(with_share(state="Rest"), "state must be one of Prepare, ", id="a new state"),
        pytest.param(with_share(vreplicas=None), "vreplicas is missing", id="no vreplicas"),
        pytest.param(with_share(weight="2"), "weight must be an integer", id="weight"),
        pytest.param(with_share(epoch=[]), "epoch must be an integer", id="epoch"),
        pytest.param(with_share(peer=3), "peer must be a string", id="peer"),
        pytest.param(with_share(indexes=5), "indexes must be a string", id="indexes a number"),
        pytest.param(with_share(indexes="0-1"), "indexes must have as many", id="too few indexes"),
        pytest.param(with_share(indexes="0,1,1"), "indexes must ascend", id="doubled"),
        pytest.param(with_share(indexes="0-1,a"), "indexes must be like", id="letters"),
        pytest.param(with_share(indexes="0-2", of=2), "indexes must be less than of", id="of"),
        pytest.param(with_share(deadline="soon"), "deadline must be a time", id="deadline"),
        pytest.param(with_share(deadline="2026-12-01T10:00:30"), "deadline must be", id="no zone"),
        pytest.param(with_share(deadline="0001-01-01T00:00:00+09:00"), "deadline", id="before 1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_fields_name(text, said):
    with pytest.raises(WireError) as refused:
        read_assignment(text)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_share_is_named_where_its_field_is_wrong():
    with pytest.raises(WireError, match=r'shares\["team-a/orders"\]\.vreplicas must be an integer'):
        read_assignment(with_share(vreplicas="3"))


def test_many_indexes_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="at most"):
        read_indexes("0-999999999")
    assert len(read_indexes(f"0-{INDEXES_MAX - 1}")) == INDEXES_MAX


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_read_as_they_are_written(indexes):
    text = write_indexes(indexes)
    assert read_indexes(text) == tuple(sorted(indexes))
    assert all(f"{n},{n + 1}" != text for n in range(40)), "neighbours are a range"


names = st.text("abc", min_size=1, max_size=5)
keys = st.builds("{}/{}".format, names, names)
indexed = st.none() | st.sets(st.integers(0, 30), min_size=1).map(lambda s: tuple(sorted(s)))


@st.composite
def shares(draw) -> ShareDocument:
    indexes = draw(indexed)
    return ShareDocument(
        state=draw(st.sampled_from(State)),
        vreplicas=draw(st.integers(1, 40)) if indexes is None else len(indexes),
        weight=draw(st.integers(1, 3)),
        of=draw(st.sampled_from([0, 50])),
        indexes=indexes,
        epoch=draw(st.integers(0, INTEGER_MAX)),
        peer=draw(st.just("") | names),
        deadline=draw(st.none() | st.datetimes(timezones=st.just(UTC))),
        intent=draw(st.sampled_from(["", "Scale", "Newer"])),
    )


@given(
    st.builds(
        Assignment,
        generation=st.integers(0, INTEGER_MAX),
        uid=names,
        pod=st.just("") | keys,
        shares=st.dictionaries(keys, shares(), max_size=3),
        lease_s=st.none() | st.floats(0.1, 1000),
    )
)
def test_an_assignment_is_read_as_it_is_written(assignment):
    assert read_assignment(write_assignment(assignment)) == assignment


lists = st.lists(keys, max_size=3).map(tuple)


@given(
    st.builds(Acknowledgement, names, st.integers(0, 9), lists, lists, lists, lists),
    st.dictionaries(keys, st.floats(0, 1e9), max_size=3),
)
def test_an_acknowledgement_is_read_as_it_is_written(said, load):
    assert read_acknowledgement(write_acknowledgement(said, load)) == (said, load)


def test_an_acknowledgement_looks_as_the_contract_says():
    said = Acknowledgement("u", 42, serving=("a/b",), drained=("c/d",))
    assert json.loads(write_acknowledgement(said, {"a/b": 0.5})) == {
        "uid": "u",
        "generation": 42,
        "serving": ["a/b"],
        "draining": [],
        "drained": ["c/d"],
        "busy": [],
        "load": {"a/b": 0.5},
    }


@given(
    st.builds(
        Placements,
        st.integers(0, 9),
        st.lists(
            st.builds(
                lambda pod, indexes: PlacedPod(
                    pod, 3 if indexes is None else len(indexes), indexes
                ),
                keys,
                indexed,
            ),
            max_size=3,
        ).map(tuple),
    )
)
def test_placements_are_read_as_they_are_written(placements):
    assert read_placements(write_placements(placements)) == placements


def test_the_longest_key_is_read():
    """An object of a foreign kind, with the longest names that Kubernetes takes."""
    label = "a" * 63
    name, group = f"{label}.{label}.{label}.{'a' * 61}", f"{label}.{label}.{label}.{'a' * 61}"
    key = f"{label}/{name}@{label}.{group}"
    told = assignment_with(key)
    assert list(read_assignment(told).shares) == [key]
    with pytest.raises(WireError, match="a long key"):
        read_assignment(assignment_with(f"a{key}"))


def assignment_with(key: str) -> bytes:
    share = {"vreplicas": 1, "weight": 1, "of": 1, "epoch": 7, "state": "Serve"}
    told = {"generation": 1, "pod": "a/b", "uid": "u", "shares": {key: share}}
    return json.dumps(told).encode()


def test_placements_may_be_short():
    short = b'{"vpod":"t/a","generation":3,"placements":[{"pod":"ns/a-0","vreplicas":2}]}'
    assert read_placements(short) == Placements(3, (PlacedPod("ns/a-0", 2),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(b'{"placements": []}', "generation is missing", id="no generation"),
        pytest.param(
            b'{"generation": 1, "placements": {}}', "placements must be a list", id="no list"
        ),
        pytest.param(
            b'{"generation": 1, "placements": [{"pod": "a"}]}',
            "placements[0].vreplicas is",
            id="vreplicas",
        ),
    ],
)
def test_placements_that_cannot_be_read_are_refused(text, said):
    with pytest.raises(WireError) as refused:
        read_placements(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "generation", "ignores_load"),
    [
        pytest.param(b"", None, False, id="empty"),
        pytest.param(b"{}", None, False, id="without"),
        pytest.param(b'{"generation": 9}', 9, False, id="with"),
        pytest.param(b'{"generation": 9, "load": "kept"}', 9, False, id="with load"),
        pytest.param(b'{"load": "ignored: replica-1 leads"}', None, True, id="load in vain"),
    ],
)
def test_the_answer_to_an_acknowledgement_may_say_a_generation(text, generation, ignores_load):
    assert read_answer(text) == (generation, ignores_load)


def test_an_answer_that_says_it_wrong_is_refused():
    with pytest.raises(WireError, match="generation must be an integer"):
        read_answer(b'{"generation": "9"}')


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["generation", "uid", "shares", "a/b", "state", "indexes", "deadline"]),
        inner,
    ),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_anything_else_is_a_wire_error_and_no_other(text):
    for read in (read_assignment, read_placements, read_answer, read_acknowledgement):
        with suppress(WireError):
            read(text)
