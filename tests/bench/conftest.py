"""What all tests of the benches share."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopwatches collect garbage before each stretch: under pytest that takes longer than what
    they measure.
    """
    monkeypatch.setattr(gc, "collect", lambda: 0)
