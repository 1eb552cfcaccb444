"""``vreplica adapter-kit``: what is asked of it, and how it reports."""

import json
import sys

import pytest

from extender.cli.main import main
from extender.lab.adapter_kit.rules import RULES

ENDS = [sys.executable, "-c", "import sys; sys.exit('no \\x1b[31m database')"]


def test_the_rules_are_listed(capsys):
    assert main(["adapter-kit", "--rules", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in listed] == [rule.name for rule in RULES]


def test_a_rule_that_is_broken_says_what_was_expected_and_seen(capsys):
    words = ["adapter-kit", "--rule", "serves", "-o", "json", "--", *ENDS]
    assert main(words) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == [
        {
            "rule": "serves",
            "outcome": "broken",
            "text": "serves what it is told to, and says so",
            "expected": "team-a/orders in serving of generation 41",
            "seen": "the process has ended with status 1; it printed: no \x1b[31m database",
        }
    ]
    assert "No work was seen" in told.err


def test_a_line_a_rule_for_people_which_no_output_of_the_adapter_can_change(capsys):
    assert main(["adapter-kit", "--rule", "serves", "--", *ENDS]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "broken   serves             serves what it is told to, and says so"
    assert lines[2].endswith("it printed: no ?[31m database")
    assert lines[-1] == "1 rules, 1 broken"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param([], "needs the command", id="no command"),
        pytest.param(["--rule", "x", "y"], "no rule is called 'x'", id="an unknown rule"),
        pytest.param(["--jobs", "0", "y"], "--jobs", id="no jobs"),
        pytest.param(["--rule", "serves", "/no/such"], "cannot be started", id="no program"),
    ],
)
def test_what_cannot_work_is_said_in_a_line(capsys, words, problem):
    assert main(["adapter-kit", *words]) == 1
    told = capsys.readouterr().err
    assert problem in told
    assert "Traceback" not in told
