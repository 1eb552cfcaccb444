"""docs/record-replay.md: the commands in it are ours, and the format in it is the one that is
written.
"""

import re
import shlex
from pathlib import Path

import pytest

from extender.cli.main import new_parser
from extender.cli.terminal.exit_status import DIFFERENT
from extender.service.http.decision_log import IDLE_S
from extender.service.http.recording_buffer import ENTRIES_MAX, FETCHED_MAX
from extender.whatif.recording.entries import Cause
from extender.whatif.recording.lines import FORMAT, FORMAT_VERSION, READERS
from extender.whatif.recording.objects import KINDS
from extender.whatif.recording.report import SAMPLES_MAX, SILENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "record-replay.md"
COMMANDS = sorted(set(re.findall(r"vreplica (?:record|replay) [^`\n]+", PAGE.read_text())))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_is_taken(command: str):
    options = new_parser().parse_args(shlex.split(command)[1:])
    assert callable(options.command)


def test_there_are_commands():
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize(
    "kind",
    sorted({*READERS, *KINDS, *map(str, Cause), FORMAT, f'"formatVersion": {FORMAT_VERSION}'}),
)
def test_the_page_names_all_that_a_line_may_say(kind: str):
    assert kind in PAGE.read_text()


@pytest.mark.parametrize(
    "said",
    [
        f"keeps {ENTRIES_MAX:,} changes",
        f"at most {FETCHED_MAX:,} entries",
        f"at most {SAMPLES_MAX} moments",
        f"exits with {DIFFERENT} where",
    ],
)
def test_its_numbers_are_the_codes(said: str):
    assert said in PAGE.read_text()
    assert (SILENCE_S, IDLE_S) == (6 * 3600.0, 60.0), "six hours, a minute"
