"""Bit sets: their members by words are their members bit by bit."""

from hypothesis import given, strategies as st

from extender.engine.pods.bits import WORD_BITS, bits

ORDINALS = st.sets(st.integers(0, 5 * WORD_BITS) | st.integers(0, 20_000))


@given(ORDINALS)
def test_the_members_are_those_that_were_put_in_ascending(ordinals):
    assert list(bits(sum(1 << ordinal for ordinal in ordinals))) == sorted(ordinals)


def test_words_that_are_full_end_where_the_next_ones_begin():
    assert list(bits((1 << 3 * WORD_BITS) - 1)) == list(range(3 * WORD_BITS))
