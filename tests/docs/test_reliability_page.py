"""docs/reliability.md lists every kind of fault that there is, and no seed that nobody runs.

``python -m tests.docs.test_reliability_page`` writes the table of faults anew.
"""

import re
import sys
from pathlib import Path

from extender.lab.simulation.world.profile import ALL_KINDS
from tests.docs.pages import with_article
from tests.simulation import test_seeds

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
HEAD = "| fault | probability of | at most | |\n|---|---|---|---|\n"


def table() -> str:
    rows = [
        f"| `{kind.name}` | {with_article(kind.per)} | {kind.most:g} | {kind.what} |"
        for kind in ALL_KINDS
    ]
    return HEAD + "\n".join(rows) + "\n"


def test_the_page_lists_every_kind_of_fault():
    assert table() in PAGE.read_text()


def test_there_are_at_least_24_kinds_and_no_two_of_a_name():
    assert len({kind.name for kind in ALL_KINDS}) == len(ALL_KINDS) >= 24


def test_the_page_names_the_seeds_that_have_shown_bugs_and_their_numbers_of_events():
    rows = re.findall(r"^\| (\d+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [(int(seed), int(events)) for seed, events in rows] == [
        (trial.seed, trial.events) for trial in test_seeds.FOUND
    ]


if __name__ == "__main__":
    text = PAGE.read_text()
    start = text.index(HEAD)
    end = text.index("\n\n", start)
    PAGE.write_text(text[:start] + table().rstrip() + text[end:])
    sys.stdout.write(f"{len(ALL_KINDS)} kinds\n")
