"""Every target against inputs that hypothesis makes up: any JSON out of the target's own words, and
any bytes or text.

The mutator stays near good inputs; these are far from them, and hypothesis shrinks what fails.
"""

import asyncio

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.fuzz.registry import TARGETS

FAST = [name for name in TARGETS if not name.endswith(("-http", "-file"))]


def documents(words: list[str]) -> st.SearchStrategy[bytes]:
    word = st.sampled_from(words) | st.text(max_size=5)
    numbers = (
        st.integers(-(2**63), 2**64 - 1)
        | st.integers(-2, 300)
        | st.floats(allow_nan=False, allow_infinity=False)
    )
    leaves = st.none() | st.booleans() | numbers | word
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(word, inner, max_size=5),
        max_leaves=12,
    )
    return values.map(orjson.dumps)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.slow
def test_whatever_comes_is_taken_or_refused(name: str):
    target = TARGETS[name]()
    with asyncio.Runner() as runner:
        runner.run(target.open())
        inputs = (
            documents(target.dictionary() or ["a"])
            | st.binary(max_size=60)
            | st.text(max_size=60).map(str.encode)
        )

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(inputs)
        def ask(data: bytes) -> None:
            assert runner.run(target.run(data))
            runner.run(target.check())

        try:
            ask()
        finally:
            runner.run(target.close())
