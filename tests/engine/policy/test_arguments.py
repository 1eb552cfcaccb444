"""Plugin arguments in JSON text: what Go's decoder takes, as Knative uses it, and what it
refuses.
"""

import pytest

from extender.engine.policy.arguments import Argument, arguments_from
from extender.model.errors import InvalidObject

MAX_SKEW = {"MaxSkew": Argument(int)}


@pytest.mark.parametrize(
    ("text", "max_skew"),
    [
        ('{"MaxSkew": 2}', 2),
        ('{"maxskew": 2}', 2),
        ('{"MaxSkew":1} trailing', 1),
        ('\n {"MaxSkew": -1}', -1),
        ("{}", 0),
        ("null", 0),
        ('{"MaxSkew": null}', 0),
        ('{"MaxSkew": 2147483647}', 2147483647),
        ('{"MaxSkew": 1, "maxSkew": 3}', 3),
    ],
)
def test_what_go_reads_is_read(text: str, max_skew: int):
    assert arguments_from(text, MAX_SKEW, "p", "args") == {"MaxSkew": max_skew}


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "nope",
        "[1]",
        "5",
        '"MaxSkew"',
        '{"MaxSkewness": 1}',
        '{"MaxSkew": "1"}',
        '{"MaxSkew": 1.0}',
        '{"MaxSkew": 1e2}',
        '{"MaxSkew": true}',
        '{"MaxSkew": 2147483648}',
        pytest.param("[" * 10_000, id="nested too deeply"),
        pytest.param(5, id="the number 5"),
        pytest.param(["MaxSkew"], id="a list"),
    ],
)
def test_what_go_refuses_is_refused(raw):
    with pytest.raises(InvalidObject, match="p: args"):
        arguments_from(raw, MAX_SKEW, "p", "args")


def test_a_mapping_must_have_what_is_required():
    with pytest.raises(InvalidObject, match=r"p: args\.MaxSkew: is required"):
        arguments_from({}, MAX_SKEW, "p", "args")


def test_a_mapping_may_leave_out_what_has_a_default():
    assert arguments_from(
        None, {"A": Argument(int, 3), "B": Argument(bool, False)}, "p", "args"
    ) == {
        "A": 3,
        "B": False,
    }
