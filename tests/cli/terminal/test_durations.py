"""Lengths of time and sizes as options have them."""

import argparse

import pytest

from extender.cli.terminal.parsing import seconds, size_bytes


@pytest.mark.parametrize(
    ("value", "expected"),
    [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("2d", 172800.0)],
)
def test_a_length_of_time(value: str, expected: float):
    assert seconds(value) == expected


@pytest.mark.parametrize(
    "value", ["", "0", "0s", "-1m", "1w", "m", "1e3", "٣s", "400d", "9999999999d"]
)
def test_what_is_none_is_refused(value: str):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a length of time"):
        seconds(value)


@pytest.mark.parametrize(
    ("value", "expected"), [("1", 1), ("2Ki", 2048), ("256Mi", 2**28), ("1Gi", 2**30)]
)
def test_a_size(value: str, expected: int):
    assert size_bytes(value) == expected


@pytest.mark.parametrize("value", ["", "0", "-1", "1M", "1.5Gi", "x"])
def test_what_is_no_size_is_refused(value: str):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size"):
        size_bytes(value)
