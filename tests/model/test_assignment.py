"""What a pod is told follows its ledger, epochs only grow, acknowledgements are read strictly."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from extender.model.assignment import (
    DRAINS_BYTES,
    NEVER_ACKNOWLEDGED,
    SHARES_MAX,
    Acknowledged,
    Acknowledgement,
    AssignedShare,
    Assignment,
    AssignmentTooLarge,
    Epochs,
    ShareInstruction,
    ShareState,
    acknowledged,
    acknowledgement_from,
    awaits_acknowledgement,
    decode_acknowledged,
    decode_assignment,
    encode_acknowledged,
    encode_assignment,
    fitting,
    generation_of,
    is_expired,
    is_renewed,
    lease_of,
    left_to_do,
    next_assignment,
)
from extender.model.errors import InvalidObject
from extender.model.indexes import indexes_from, indexes_text
from extender.model.ledger import Ledger, Share
from extender.model.names import ACKNOWLEDGED_BYTES_MAX, ASSIGNMENT_BYTES_MAX

POD = ("adapters/dispatcher-3", "uid-3")
SERVE = ShareInstruction()
PREPARE = ShareInstruction(ShareState.PREPARE, "dispatcher-1")
DRAIN = ShareInstruction(ShareState.DRAIN, "dispatcher-1", "2026-12-01T10:00:30.000Z", "Rebalance")


def told(
    before: Assignment | None, ledger: Ledger, of: Mapping[str, int] | None = None, epoch: int = 7
) -> Assignment | None:
    return next_assignment(before, POD, ledger, of or {}, lambda: epoch)


def a_full_assignment(spare: int = 0) -> Assignment:
    """As many shares as fit, and ``spare`` bytes more besides those that are kept for drains."""
    shares = {f"tenant/v-{index:05}": AssignedShare(9, 1, 9, 7) for index in range(5_000)}
    kept = dict(fitting(Assignment(1, *POD, shares), {}).shares)
    size = len(encode_assignment(Assignment(1, *POD, kept)))
    key = next(iter(kept))
    longer = "x" * max(0, ASSIGNMENT_BYTES_MAX - DRAINS_BYTES - size - spare)
    kept[f"{key}{longer}"] = kept.pop(key)
    return Assignment(1, *POD, kept)


def assigned(generation: int = 1, **shares: AssignedShare) -> Assignment:
    return Assignment(generation, *POD, {f"t/{name}": share for name, share in shares.items()})


class TestNextAssignment:
    def test_the_first_one_has_a_new_epoch_as_generation_and_all_shares_of_the_ledger(self):
        share = AssignedShare(3, 2, 8, 7)
        assert told(None, {"t/a": Share(3, 2)}, {"t/a": 8}) == assigned(7, a=share)

    def test_a_pod_without_work_is_told_so(self):
        assert told(None, {}) == assigned(7)

    def test_nothing_new_is_no_new_generation(self):
        before = assigned(4, a=AssignedShare(3, 1, 8, 7))
        assert told(before, {"t/a": Share(3)}, {"t/a": 8}, epoch=9) is None

    @pytest.mark.parametrize(
        ("ledger", "of", "share"),
        [
            pytest.param({"t/a": Share(5)}, 8, AssignedShare(5, 1, 8, 7), id="it grows"),
            pytest.param({"t/a": Share(3)}, 9, AssignedShare(3, 1, 9, 7), id="the vpod grows"),
            pytest.param({"t/a": Share(3, 4)}, 8, AssignedShare(3, 4, 8, 7), id="it gets heavier"),
        ],
    )
    def test_a_share_that_changes_keeps_its_epoch(self, ledger, of, share):
        before = assigned(4, a=AssignedShare(3, 1, 8, 7))
        assert told(before, ledger, {"t/a": of}, epoch=9) == assigned(5, a=share)

    def test_a_share_that_comes_back_has_a_new_epoch(self):
        before = assigned(4, a=AssignedShare(3, 1, 8, 7))
        gone = told(before, {})
        assert gone == assigned(5)
        assert told(gone, {"t/a": Share(3)}, {"t/a": 8}, epoch=9) == assigned(
            6, a=AssignedShare(3, 1, 8, 9)
        )

    def test_of_a_vpod_that_is_gone_the_last_number_is_kept(self):
        before = assigned(4, a=AssignedShare(3, 1, 8, 7))
        assert told(before, {"t/a": Share(2)}) == assigned(5, a=AssignedShare(2, 1, 8, 7))

    @pytest.mark.parametrize(
        ("had", "told", "epoch"),
        [
            pytest.param(None, PREPARE, 9, id="it comes"),
            pytest.param(PREPARE, SERVE, 7, id="it is prepared, and then served"),
            pytest.param(SERVE, DRAIN, 7, id="it lets go"),
            pytest.param(DRAIN, SERVE, 9, id="it is served again"),
            pytest.param(DRAIN, PREPARE, 9, id="it is to be served again"),
        ],
    )
    def test_a_share_has_a_new_epoch_where_another_pod_may_have_served_it(self, had, told, epoch):
        before = assigned(4, **({"a": AssignedShare(3, 1, 8, 7, *had[:4])} if had else {}))
        after = next_assignment(
            before, POD, {"t/a": Share(3)}, {"t/a": 8}, lambda: 9, lambda _vpod, _had: told
        )
        assert after == assigned(5, a=AssignedShare(3, 1, 8, epoch, *told[:4]))

    def test_a_pod_may_be_told_fewer_vreplicas_than_its_ledger_has(self):
        fewer = ShareInstruction(vreplicas=2)
        after = next_assignment(None, POD, {"t/a": Share(3)}, {}, lambda: 9, lambda *_: fewer)
        assert after == assigned(9, a=AssignedShare(2, 1, 3, 9))

    @pytest.mark.parametrize(
        ("had", "indexes", "over", "share"),
        [
            pytest.param("0-2", "0-2", 0, AssignedShare(3, 1, 8, 7), id="the same"),
            pytest.param("0-3", "0-2", 0, AssignedShare(3, 1, 8, 7), id="fewer"),
            pytest.param("0-1", "0-2", 0, AssignedShare(3, 1, 8, 9), id="one more"),
            pytest.param("", "0-2", 0, AssignedShare(3, 1, 8, 9), id="the pool gets indexes"),
            pytest.param("0-2", "0-2", 7, AssignedShare(3, 1, 8, 9), id="one comes back"),
            pytest.param("0-1,9", "0-1,9", 0, AssignedShare(3, 1, 10, 7), id="the vpod shrinks"),
        ],
    )
    def test_its_epoch_grows_with_each_index_that_may_have_been_another_pods(
        self, had: str, indexes: str, over: int, share: AssignedShare
    ):
        known = AssignedShare(len(had) or 3, 1, 8, 7, indexes=had)
        instruction = ShareInstruction(vreplicas=3, indexes=indexes_from(indexes), epoch_over=over)
        after = next_assignment(
            assigned(4, a=known._replace(weight=2)),
            POD,
            {"t/a": Share(3)},
            {"t/a": 8},
            lambda: 9,
            lambda *_: instruction,
        )
        assert after == assigned(5, a=share._replace(indexes=indexes))

    def test_it_is_told_anew_when_its_pool_becomes_exclusive(self):
        before = assigned(4, a=AssignedShare(3, 1, 8, 7))
        after = next_assignment(before, POD, {"t/a": Share(3)}, {"t/a": 8}, lambda: 9, lease_s=30)
        assert after == replace(before, generation=5, lease_s=30)
        assert next_assignment(after, POD, {"t/a": Share(3)}, {"t/a": 8}, int, lease_s=30) is None

    def test_each_share_is_told_for_itself_from_what_its_pod_had(self):
        asked: list[tuple[str, AssignedShare | None]] = []

        def instruct(vpod: str, had: AssignedShare | None) -> ShareInstruction:
            asked.append((vpod, had))
            return DRAIN if vpod == "t/a" else SERVE

        had = AssignedShare(3, 1, 8, 7)
        ledger = {"t/a": Share(3), "t/b": Share(1)}
        after = next_assignment(assigned(4, a=had), POD, ledger, {}, lambda: 9, instruct)
        assert asked == [("t/a", had), ("t/b", None)]
        assert after == assigned(
            5, a=AssignedShare(3, 1, 8, 7, *DRAIN[:4]), b=AssignedShare(1, 1, 1, 9)
        )


class TestEpochs:
    @given(
        st.lists(
            st.tuples(st.integers(0, 50), st.lists(st.integers(0, 100), max_size=3)), max_size=20
        )
    )
    def test_each_is_greater_than_all_that_are_stored(self, steps):
        version, stored = 0, [0]
        epochs = Epochs(lambda: version)
        for grown, found in steps:
            version += grown
            stored.extend(found)
            epochs.note(stored_epochs(*found))
            epoch = epochs.next()
            assert epoch > max(stored)
            assert epoch >= version
            epochs.note(stored_epochs(epoch))
            stored.append(epoch)

    def test_writes_that_fail_do_not_carry_them_past_what_the_next_leader_begins_with(self):
        version = 100
        epochs = Epochs(lambda: version)
        for _ in range(50):
            epochs.next()
        stored = epochs.next()
        version += 1  # the write that has succeeded
        assert Epochs(lambda: version).next() > stored, "its pod is gone: nobody notes its epoch"

    def test_what_the_watch_has_not_brought_yet_counts(self):
        assert Epochs(lambda: 100).next(at_least=120) == 120


def stored_epochs(*epochs: int) -> Assignment:
    return Assignment(1, *POD, {str(epoch): AssignedShare(1, 1, 1, epoch) for epoch in epochs})


def with_or_without_indexes(share: AssignedShare) -> st.SearchStrategy[AssignedShare]:
    some = st.sets(st.integers(0, 99), min_size=1).map(
        lambda members: share._replace(
            vreplicas=len(members), indexes=indexes_text(sum(1 << index for index in members))
        )
    )
    return st.just(share) | some


class TestAnnotations:
    @given(
        st.dictionaries(
            st.text(min_size=1, max_size=20),
            st.builds(
                AssignedShare,
                st.integers(1, 2**31 - 1),
                st.integers(1, 20),
                st.integers(0, 2**31 - 1),
                st.integers(0, 2**63 - 1),
                st.sampled_from(ShareState),
                *[st.text(max_size=20)] * 3,
                indexes=st.just(""),
            ).flatmap(with_or_without_indexes),
            max_size=5,
        ),
        st.integers(1, 2**63 - 1),
    )
    def test_an_assignment_is_read_as_it_was_written(self, shares, generation):
        assignment = Assignment(generation, *POD, shares)
        assert decode_assignment(encode_assignment(assignment)) == assignment

    def test_it_looks_as_the_contract_says(self):
        text = encode_assignment(assigned(42, orders=AssignedShare(3, 1, 8, 7)))
        assert json.loads(text) == {
            "generation": 42,
            "pod": "adapters/dispatcher-3",
            "uid": "uid-3",
            "shares": {
                "t/orders": {"vreplicas": 3, "weight": 1, "of": 8, "epoch": 7, "state": "Serve"}
            },
        }

    def test_what_a_hand_over_adds_stands_only_where_it_is_said(self):
        shares = {
            "a": AssignedShare(3, 1, 8, 7, *DRAIN[:4]),
            "b": AssignedShare(1, 1, 1, 8, *PREPARE[:4]),
        }
        found = json.loads(encode_assignment(assigned(42, **shares)))["shares"]
        assert found["t/a"] == {
            "vreplicas": 3,
            "weight": 1,
            "of": 8,
            "epoch": 7,
            "state": "Drain",
            "peer": "dispatcher-1",
            "deadline": "2026-12-01T10:00:30.000Z",
            "intent": "Rebalance",
        }
        assert found["t/b"].keys() == {"vreplicas", "weight", "of", "epoch", "state", "peer"}

    def test_a_lease_stands_only_where_there_is_one(self):
        text = encode_assignment(replace(assigned(42), lease_s=30))
        assert json.loads(text) == {
            "generation": 42,
            "pod": "adapters/dispatcher-3",
            "uid": "uid-3",
            "leaseSeconds": 30,
            "shares": {},
        }
        assert decode_assignment(text) == replace(assigned(42), lease_s=30)

    def test_indexes_stand_only_where_there_are_some(self):
        share = AssignedShare(3, 1, 8, 7, indexes="0-1,5")
        text = encode_assignment(assigned(42, a=share, b=AssignedShare(1, 1, 1, 8)))
        found = json.loads(text)["shares"]
        assert found["t/a"]["indexes"] == "0-1,5"
        assert "indexes" not in found["t/b"]

    def test_one_that_an_earlier_version_has_written_is_read(self):
        text = (
            '{"generation":42,"pod":"adapters/dispatcher-3","uid":"uid-3","shares":'
            '{"t/a":{"vreplicas":3,"weight":1,"of":8,"epoch":7,"state":"Serve"}}}'
        )
        assert decode_assignment(text) == assigned(42, a=AssignedShare(3, 1, 8, 7))

    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "{",
            "[]",
            "7",
            '{"generation": 1}',
            '{"generation": -1, "pod": "p", "uid": "u", "shares": {}}',
            '{"generation": true, "pod": "p", "uid": "u", "shares": {}}',
            '{"generation": 1, "pod": "p", "uid": "u", "shares": []}',
            '{"generation": 1, "pod": "p", "uid": "u", "shares": {"a": 3}}',
            '{"generation": 1, "pod": "p", "uid": "u", "shares": {"a": {"vreplicas": 1, '
            '"weight": 1, "of": 1, "epoch": 1, "state": "Dance"}}}',
            '{"generation": 1, "pod": "p", "uid": "u", "shares": {"a": {"vreplicas": 1, '
            '"weight": 1, "of": 4, "epoch": 1, "state": "Serve", "indexes": "0-1"}}}',
            '{"generation": 1, "pod": "p", "uid": "u", "shares": {"a": {"vreplicas": 1, '
            '"weight": 1, "of": 4, "epoch": 1, "state": "Serve", "indexes": "one"}}}',
        ],
    )
    def test_a_text_of_somebody_else_is_no_assignment(self, text):
        assert decode_assignment(text) is None

    def test_too_many_shares_are_refused_with_both_sizes(self):
        share = AssignedShare(1, 1, 1, 1)
        many = Assignment(1, *POD, {f"tenant/{'v' * 200}-{i}": share for i in range(400)})
        with pytest.raises(AssignmentTooLarge, match=r"of \d+ bytes is over the limit of 98304"):
            encode_assignment(many)

    def test_shares_that_were_told_before_come_first_where_not_all_fit(self):
        share = AssignedShare(1, 1, 1, 1)
        keys = [f"tenant/{'v' * 200}-{i:03}" for i in range(400)]
        many = Assignment(1, *POD, dict.fromkeys(keys, share))
        kept = fitting(many, dict.fromkeys((keys[-1], "tenant/gone"), share))
        assert {*kept.shares} == {keys[-1], *keys[: len(kept.shares) - 1]}
        longer = replace(kept, shares={**kept.shares, keys[len(kept.shares)]: share})
        assert len(encode_assignment(kept)) <= ASSIGNMENT_BYTES_MAX - DRAINS_BYTES
        assert len(encode_assignment(longer)) > ASSIGNMENT_BYTES_MAX - DRAINS_BYTES

    def test_drains_that_begin_wait_where_not_all_fit(self):
        """They take more bytes than what is served, and nothing else may be left out for them."""
        served = AssignedShare(1, 1, 1, 1)
        drained = served._replace(state=DRAIN.state, peer="p" * 60, deadline=DRAIN.deadline)
        keys = [f"tenant/{'v' * 30}-{i:03}" for i in range(850)]
        before = dict.fromkeys(keys, served)
        kept = fitting(Assignment(1, *POD, before | dict.fromkeys(keys[:500], drained)), before)
        assert kept.shares.keys() == before.keys()
        waiting = [key for key in keys[:500] if kept.shares[key] == served]
        assert 0 < len(waiting) < 500
        assert waiting == keys[500 - len(waiting) : 500]
        assert len(encode_assignment(kept)) <= ASSIGNMENT_BYTES_MAX

    def test_what_is_served_stays_told_although_another_share_has_grown(self):
        before = a_full_assignment()
        first, *_ = before.shares
        grown = {**before.shares, first: before.shares[first]._replace(vreplicas=10**9)}
        assert fitting(replace(before, shares=grown), before.shares).shares == before.shares

    @pytest.mark.parametrize("spare", [0, 1, 50, 100])
    def test_some_drains_can_always_begin(self, spare):
        before = a_full_assignment(spare)
        drained = {
            key: share._replace(state=DRAIN.state, peer="p" * 253, deadline=DRAIN.deadline)
            for key, share in before.shares.items()
        }
        kept = fitting(replace(before, shares=drained), before.shares).shares
        assert kept.keys() == before.shares.keys()
        assert sum(share.state is DRAIN.state for share in kept.values()) >= 2

    def test_all_are_kept_where_they_fit(self):
        few = assigned(1, a=AssignedShare(1, 1, 1, 1))
        assert fitting(few, {}) is few

    @given(
        st.integers(1, 9),
        st.integers(0, 9),
        st.frozensets(st.one_of(st.text(max_size=5), st.just('"expired":true')), max_size=4),
        st.sampled_from(["", "2026-11-29T08:00:00Z"]),
        st.booleans(),
    )
    def test_an_acknowledgement_is_read_as_it_was_written(
        self, generation, serving, busy, renewed, expired
    ):
        known = Acknowledged(generation, serving, busy, renewed=renewed, expired=expired)
        text = encode_acknowledged(known)
        assert decode_acknowledged(text) == known
        assert is_expired(text) is expired
        assert is_renewed(text) is (bool(renewed) and not expired)

    def test_a_mark_of_an_adapter_that_has_never_acknowledged_is_no_acknowledgement(self):
        text = encode_acknowledged(replace(NEVER_ACKNOWLEDGED, expired=True))
        assert is_expired(text)
        assert decode_acknowledged(text) is None
        assert generation_of(text) == 0

    @pytest.mark.parametrize("lease_s", [0, 30])
    def test_the_lease_is_read_from_the_head(self, lease_s):
        name = 'a"leaseSeconds":7,'
        told = Assignment(4, *POD, {name: AssignedShare(1, 1, 1, 7)}, lease_s)
        assert lease_of(encode_assignment(told)) == lease_s
        assert lease_of(None) == 0

    def test_if_the_names_of_the_busy_ones_do_not_fit_all_count_as_busy(self):
        names = [f"tenant/{index:0250}" for index in range(200)]
        text = encode_acknowledged(Acknowledged(4, 0, frozenset(names)))
        assert len(text) < ACKNOWLEDGED_BYTES_MAX
        known = decode_acknowledged(text)
        assert known == Acknowledged(4, 0, all_busy=True)
        assert known.is_busy(names[0])
        assert encode_acknowledged(known) == text
        assert is_expired(encode_acknowledged(replace(known, expired=True)))

    @pytest.mark.parametrize(
        "text", [None, "", "{", "[]", "7", "{}", '{"generation": 1, "serving": 1, "busy": "a"}']
    )
    def test_a_text_of_somebody_else_is_no_acknowledgement(self, text):
        assert decode_acknowledged(text) is None


def says(**fields) -> Acknowledgement:
    fields = {"uid": "uid-3", "generation": 4, "serving": ["t/a"], **fields}
    return acknowledgement_from(json.dumps(fields).encode())


class TestAcknowledgement:
    ASSIGNMENT = assigned(4, a=AssignedShare(3, 1, 8, 7), b=AssignedShare(1, 1, 1, 8))

    @pytest.mark.parametrize(
        ("said", "stored"),
        [
            pytest.param({"serving": ["t/a", "t/b"]}, Acknowledged(4, 2), id="all"),
            pytest.param(
                {"serving": ["t/a"]}, Acknowledged(4, 1, frozenset({"t/b"})), id="one is left out"
            ),
            pytest.param(
                {"serving": ["t/a", "t/b"], "busy": ["t/a"]},
                Acknowledged(4, 1, frozenset({"t/a"})),
                id="one is busy",
            ),
        ],
    )
    def test_what_is_not_served_yet_is_stored(self, said, stored):
        acknowledgement = says(**said)
        assert acknowledgement.problem(self.ASSIGNMENT) == ""
        assert acknowledged(acknowledgement, self.ASSIGNMENT) == stored

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            pytest.param({"serving": ["t/x"]}, "serving has 't/x'", id="served, not assigned"),
            pytest.param({"drained": ["t/x"]}, "drained has 't/x'", id="drained, not assigned"),
            pytest.param(
                {"serving": ["t/a"], "drained": ["t/a"]},
                "serving and drained both have 't/a'",
                id="served and drained",
            ),
        ],
    )
    def test_one_that_does_not_go_with_the_assignment_is_refused(self, said, problem):
        assert says(**said).problem(self.ASSIGNMENT).startswith(problem)

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (b"{", "the body"),
            (b"[]", "the body"),
            (b"{}", "uid"),
            (b'{"uid": "u"}', "generation"),
            (b'{"uid": "u", "generation": 0}', "generation"),
            (b'{"uid": "u", "generation": true}', "generation"),
            (b'{"uid": "u", "generation": 1, "serving": "t/a"}', "serving"),
            (b'{"uid": "u", "generation": 1, "serving": [1]}', "serving"),
            (b'{"uid": "u", "generation": 1, "busy": {}}', "busy"),
            (b'{"uid": "u", "generation": 1, "load": []}', "load"),
            (b'{"uid": "u", "generation": 1, "load": {"t/a": "9"}}', r"load\['t/a'\]"),
            (b'{"uid": "u", "generation": 1, "load": {"t/a": true}}', r"load\['t/a'\]"),
            (b'{"uid": "u", "generation": 1, "load": {"t/a": -0.5}}', r"load\['t/a'\]"),
            (b'{"uid": "u", "generation": 1, "load": {"t/a": NaN}}', "the body"),
            (b'{"uid": "u", "generation": 1, "load": {"t/a": 1e999}}', "the body"),
        ],
    )
    def test_a_bad_field_is_named(self, body, field):
        with pytest.raises(InvalidObject, match=f"^acknowledgement: {field}"):
            acknowledgement_from(body)

    def test_a_list_has_a_limit(self):
        with pytest.raises(InvalidObject, match=f"has {SHARES_MAX + 1} entries"):
            says(serving=[f"t/{i}" for i in range(SHARES_MAX + 1)])

    def test_fields_of_a_newer_library_are_ignored(self):
        assert says(lease=3).generation == 4

    @given(st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(self, body):
        with suppress(InvalidObject):
            acknowledgement_from(body)


@pytest.mark.parametrize(
    ("assignment", "acknowledged", "awaits"),
    [
        pytest.param(None, None, False, id="nothing is told"),
        pytest.param('{"generation":1,"pod":"a/b"}', None, True, id="nothing is said"),
        pytest.param('{"generation":2,"x":1}', '{"generation":1,"serving":0}', True, id="behind"),
        pytest.param('{"generation":2,"x":1}', '{"generation":2,"serving":0}', False, id="said"),
        pytest.param('{"generation":10,"x":1}', '{"generation":9}', True, id="as numbers"),
        pytest.param(None, '{"generation":9}', False, id="told no longer"),
        pytest.param("x", "y", False, id="neither is ours"),
        pytest.param(
            '{"generation":2,"x":1}', '{ "generation": 2, "serving": 0}', False, id="edited"
        ),
    ],
)
def test_an_adapter_that_is_behind_is_awaited(
    assignment: str | None, acknowledged: str | None, awaits: bool
):
    assert awaits_acknowledgement(assignment, acknowledged) is awaits


@pytest.mark.parametrize(
    ("shares", "said", "left"),
    [
        pytest.param((SERVE, SERVE), 4, "", id="it serves"),
        pytest.param((SERVE, SERVE), 3, "unacknowledged", id="it is behind"),
        pytest.param((PREPARE, DRAIN), 4, "1 to prepare, 1 to drain", id="both"),
        pytest.param((DRAIN, DRAIN), 3, "2 to drain, unacknowledged", id="it may not know"),
    ],
)
def test_what_an_adapter_has_still_to_do(
    shares: tuple[ShareInstruction, ...], said: int, left: str
):
    told = {str(i): AssignedShare(1, 1, 1, 7, *share[:4]) for i, share in enumerate(shares)}
    acknowledgement = encode_acknowledged(Acknowledged(said, 2))
    assert left_to_do(encode_assignment(assigned(4, **told)), acknowledgement) == left


def test_what_an_adapter_calls_busy_is_still_to_be_served():
    told = encode_assignment(assigned(4, a=AssignedShare(1, 1, 1, 7), b=AssignedShare(1, 1, 1, 7)))
    said = encode_acknowledged(Acknowledged(4, 1, frozenset({"b"})))
    assert left_to_do(told, said) == "1 to serve"
    assert left_to_do(told, encode_acknowledged(Acknowledged(3, 0, frozenset({"a"})))) == (
        "unacknowledged"
    )


def test_an_adapter_whose_lease_has_run_out_is_shown_so():
    told = encode_assignment(assigned(4, a=AssignedShare(1, 1, 1, 7)))
    said = encode_acknowledged(Acknowledged(4, 1, expired=True))
    assert left_to_do(told, said) == "lease expired"


def test_who_is_told_nothing_has_nothing_to_do():
    assert left_to_do(None, None) == ""
    name = 'a":{"state":"Drain"}'
    text = encode_assignment(assigned(4, **{name: AssignedShare(1, 1, 1, 7)}))
    assert left_to_do(text, encode_acknowledged(Acknowledged(4, 1))) == "", "it is only a name"


@pytest.mark.parametrize("said", ["draining", "drained"])
def test_who_lets_go_of_what_it_should_get_ready_for_is_not_ready(said: str):
    """An adapter that is about to end says so of all its shares."""
    prepare = AssignedShare(1, 1, 1, 1, ShareState.PREPARE)
    assignment = assigned(3, a=prepare, b=prepare)
    lists = {"serving": frozenset[str](), "draining": frozenset[str](), said: frozenset({"t/a"})}
    acknowledgement = Acknowledgement(
        uid="uid-3",
        generation=3,
        serving=lists["serving"],
        draining=lists["draining"],
        drained=lists.get("drained", frozenset()),
    )
    assert acknowledged(acknowledgement, assignment).busy == {"t/a"}
