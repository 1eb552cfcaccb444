"""Whole-number quantities, as the API server stores them for extended resources."""

import pytest
from hypothesis import given, strategies as st

from extender.model.quantity import QUANTITY_MAX, quantity


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        ("20", 20),
        (20, 20),
        ("0", 0),
        (0, 0),
        ("+7", 7),
        ("007", 7),
        ("5.", 5),
        ("99999999999", 99_999_999_999),
        ("1k", 1000),
        ("2500k", 2_500_000),
        ("1.5k", 1500),
        ("3M", 3_000_000),
        ("1G", 10**9),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("1.5Ki", 1536),
        ("2Mi", 2 * 1024**2),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2500e-2", 25),
        ("2000m", 2),
        ("3000000u", 3),
        ("4000000000n", 4),
        ("9Ei", QUANTITY_MAX),
        ("1e99", QUANTITY_MAX),
        (2**70, QUANTITY_MAX),
        ("9" * 60, QUANTITY_MAX),
    ],
    ids=repr,
)
def test_a_quantity(value, amount):
    assert quantity(value) == amount


@pytest.mark.parametrize(
    "value",
    [
        "",
        None,
        "-1",
        -1,
        "1.5",
        1.5,
        "1500m",
        "1e-3",
        "0.1k1",
        True,
        "k",
        "Ki",
        ".",
        "1 k",
        "1K",
        "1ki",
        "1kb",
        "1KiB",
        "1e",
        "1e+",
        "1e1000",
        "²",
        "1_000",
        "0x10",
        "Infinity",
        "9" * 65,
        ["20"],
    ],
    ids=repr,
)
def test_not_a_whole_quantity(value):
    assert quantity(value) is None


@given(st.integers(0, 2**62), st.sampled_from(["k", "M", "Ki", "Mi"]))
def test_a_suffix_only_multiplies(count, suffix):
    scale = {"k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}[suffix]
    assert quantity(f"{count}{suffix}") == min(count * scale, QUANTITY_MAX)
    assert quantity(str(count)) == count
