"""docs/cli.md is what the parsers say, and says all of it."""

from pathlib import Path

import pytest

from extender.cli.main import main, new_parser
from extender.cli.terminal.exit_status import MEANINGS
from extender.cli.terminal.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_what_the_parsers_say():
    assert PAGE.read_text() == reference(new_parser()), "vreplica __reference > docs/cli.md"


def test_a_choice_of_words_stays_in_its_cell_of_the_table():
    assert "\n| `VPOD\\|POD` | NAME" in PAGE.read_text()


@pytest.mark.parametrize(
    "said", ["## vreplica replay", "### vreplica config check", "`--set FIELD=NUMBER`", "| 130 |"]
)
def test_it_has_commands_actions_options_and_exit_statuses(said: str):
    assert said in PAGE.read_text()


def test_it_prints_itself(capsys: pytest.CaptureFixture[str]):
    assert main(["__reference"]) == 0
    assert capsys.readouterr().out == PAGE.read_text()


def test_every_exit_status_has_its_meaning():
    assert set(MEANINGS) == {0, 1, 2, 130, 141}
