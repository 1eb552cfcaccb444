"""``vreplica adapter-kit``: what is asked of it, and how it reports."""

import json
import os
import subprocess
import sys

import pytest

from extender.cli.main import main
from extender.lab.adapter_kit.folder import SharedFolder
from extender.lab.adapter_kit.rules import RULES
from tests.lab.adapter_kit.playing import program, two_free_ports

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


def test_skipped_rules_are_no_failure_and_are_counted(capsys, tmp_path):
    port = two_free_ports()
    urls = [f"https://127.0.0.1:{each}" for each in (port, port + 1)]
    folder = SharedFolder(tmp_path / "kit").path
    variables = {
        "VREPLICA_URLS": ",".join(urls),
        "VREPLICA_DIR": str(folder),
        "VREPLICA_WORK_LOG": str(folder / "work.jsonl"),
    }
    adapter = subprocess.Popen(program("Adapter"), env={**os.environ, **variables})
    try:
        words = ["--rule", "serves", "--rule", "ends-well", "--folder", str(folder), urls[0]]
        assert main(["adapter-kit", *words]) == 0
    finally:
        adapter.kill()
        adapter.wait()
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].startswith("kept     serves")
    assert lines[1].startswith("skipped  ends-well")
    assert lines[-1] == "2 rules, 0 broken, 1 skipped"
    assert f"  export VREPLICA_DIR={folder}" in told.err


def test_an_adapter_that_does_not_connect_is_an_error_that_names_the_url(capsys):
    url = f"https://127.0.0.1:{two_free_ports()}"
    assert main(["adapter-kit", "--wait-seconds", "0.1", url]) == 1
    told = capsys.readouterr()
    assert f"no adapter connected to {url} within 0.1 s" in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param([], "needs the command", id="no command"),
        pytest.param(["http://127.0.0.1:1"], "https:// only", id="a URL without TLS"),
        pytest.param(["https://127.0.0.1:0"], "from 1 to 65534", id="any free port"),
        pytest.param(["https://127.0.0.1:1", "y"], "'y' does", id="more than a URL"),
        pytest.param(["--folder", "f", "y"], "--folder is for a URL", id="a folder for a command"),
        pytest.param(["--jobs", "0", "y"], "--jobs", id="no jobs"),
    ],
)
def test_a_wrong_command_line_is_usage_and_says_what_is_wrong(capsys, words, problem):
    with pytest.raises(SystemExit) as ended:
        main(["adapter-kit", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["--rule", "ends-well", "https://[::1]:9"], "COMMAND", id="nothing to play"),
        pytest.param(
            ["--folder", "/dev/null/f", "https://127.0.0.1:9"], "cannot be used", id="no folder"
        ),
        pytest.param(["--rule", "x", "y"], "no rule is called 'x'", id="an unknown rule"),
        pytest.param(["--rule", "serves", "/no/such"], "cannot be started", id="no program"),
    ],
)
def test_what_cannot_work_is_said_in_a_line(capsys, words, problem):
    assert main(["adapter-kit", *words]) == 1
    told = capsys.readouterr().err
    assert problem in told
    assert "Traceback" not in told
