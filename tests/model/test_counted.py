"""Numbers with their nouns, and lists that are cut short."""

import pytest

from extender.model.counted import first_of


@pytest.mark.parametrize(
    ("names", "said"),
    [
        pytest.param([], "", id="none"),
        pytest.param(["a"], "a", id="one"),
        pytest.param(["a", "b"], "a, b", id="just as many as are named"),
        pytest.param(["a", "b", "c"], "a, b, ...", id="one more"),
    ],
)
def test_the_first_names_are_listed_and_that_there_are_more(names: list[str], said: str):
    assert first_of(names, 2) == said
