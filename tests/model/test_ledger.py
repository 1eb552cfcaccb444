"""The ledger's text: written compactly, read strictly (DESIGN 2)."""

import pytest
from hypothesis import given, strategies as st

from extender.model.errors import LedgerTooLarge, LedgerUnreadable
from extender.model.ledger import Share, decode_ledger, encode_ledger, ledger_amounts, ledger_slots
from extender.model.names import LEDGER_BYTES_MAX

counts = st.integers(1, 2**31 - 1)
amounts = st.dictionaries(
    st.from_regex(r"[a-rt-z][a-z0-9-]{0,30}", fullmatch=True), counts, max_size=4
).map(lambda named: tuple(sorted(named.items())))
ledgers = st.dictionaries(
    st.text(min_size=1, max_size=8), st.builds(Share, counts, counts, amounts), max_size=6
)


@given(ledgers)
def test_what_is_written_is_read_back(ledger):
    assert decode_ledger(encode_ledger(ledger)) == ledger


def test_the_text_is_compact_and_sorted_with_the_weight_where_it_is_not_1():
    text = encode_ledger({"t/b": Share(2, 3), "t/a": Share(1), "t/none": Share(0)})
    assert text == '{"t/a":1,"t/b":[2,3]}'
    assert ledger_slots(decode_ledger(text)) == 7


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="absent"),
        pytest.param("", id="empty"),
        pytest.param("{}", id="nothing"),
    ],
)
def test_no_text_is_the_empty_ledger(text):
    assert decode_ledger(text) == {}


def test_amounts_follow_the_weight_and_are_summed():
    ledger = {"t/a": Share(2, 1, (("cpu", 250), ("memory", 64))), "t/b": Share(3)}
    text = encode_ledger(ledger)
    assert text == '{"t/a":[2,1,{"cpu":250,"memory":64}],"t/b":3}'
    assert ledger_amounts(decode_ledger(text)) == {"cpu": 500, "memory": 128}


def test_entries_of_nothing_are_left_out():
    assert decode_ledger('{"t/a":0,"t/b":[0,2]}') == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="not JSON"),
        pytest.param("[]", id="a list"),
        pytest.param("3", id="a number"),
        pytest.param('{"t/a":-1}', id="negative"),
        pytest.param('{"t/a":1.5}', id="a fraction"),
        pytest.param('{"t/a":1.0}', id="a float"),
        pytest.param('{"t/a":true}', id="a boolean"),
        pytest.param('{"t/a":null}', id="null"),
        pytest.param('{"t/a":"1"}', id="a string"),
        pytest.param('{"t/a":2147483648}', id="more than an int32"),
        pytest.param('{"t/a":99999999999999999999999}', id="more than an int64"),
        pytest.param('{"t/a":[1]}', id="no weight"),
        pytest.param('{"t/a":[1,0]}', id="weightless"),
        pytest.param('{"t/a":[1,2,3]}', id="too many numbers"),
        pytest.param('{"t/a":[1,2,{}]}', id="amounts of nothing"),
        pytest.param('{"t/a":[1,0,{"cpu":1}]}', id="weightless with amounts"),
        pytest.param('{"t/a":[1,true,{"cpu":1}]}', id="a boolean weight with amounts"),
        pytest.param('{"t/a":[1,2,{"cpu":0}]}', id="an amount of nothing"),
        pytest.param('{"t/a":[1,2,{"cpu":2147483648}]}', id="an amount over an int32"),
        pytest.param('{"t/a":[1,2,{"cpu":1.0}]}', id="a fractional amount"),
        pytest.param('{"t/a":[1,2,{"slots":1}]}', id="a dimension that is taken for slots"),
        pytest.param('{"t/a":[1,2,{"CPU":1}]}', id="a dimension in capitals"),
        pytest.param('{"t/a":[1,2,{"a":1,"b":1,"c":1,"d":1,"e":1}]}', id="too many dimensions"),
        pytest.param('{"t/a":[true,1]}', id="a boolean count"),
        pytest.param('{"t/a":[1,true]}', id="a boolean weight"),
        pytest.param('{"t/a":{}}', id="an object"),
        pytest.param("[" * 100_000, id="very deep"),
        pytest.param('{"t/a":"\ud800"}', id="not Unicode"),
        pytest.param(" " * LEDGER_BYTES_MAX + "{}", id="too long"),
    ],
)
def test_anything_else_is_unreadable(text):
    with pytest.raises(LedgerUnreadable) as caught:
        decode_ledger(text)
    assert len(str(caught.value)) < 400


def test_a_ledger_may_be_as_large_as_the_limit_and_no_larger():
    def of(length: int) -> dict[str, Share]:
        return {"x" * (length - len('{"":1}')): Share(1)}

    assert len(encode_ledger(of(LEDGER_BYTES_MAX))) == LEDGER_BYTES_MAX
    assert decode_ledger(encode_ledger(of(LEDGER_BYTES_MAX)))
    with pytest.raises(LedgerTooLarge) as caught:
        encode_ledger(of(LEDGER_BYTES_MAX + 1))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (
        LEDGER_BYTES_MAX + 1,
        LEDGER_BYTES_MAX,
    )
