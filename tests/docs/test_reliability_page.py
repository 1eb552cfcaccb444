"""docs/reliability.md lists every kind of fault that there is, and no seed that nobody runs.

``python -m tests.docs.test_reliability_page`` writes the table of faults anew.
"""

import re
import sys
from pathlib import Path

from extender.lab.simulation.world.profile import ALL_KINDS
from tests.simulation import test_seeds

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
HEAD = "| fault | probability of | at most | |\n|---|---|---|---|\n"


def with_article(noun: str) -> str:
    return f"an {noun}" if noun.startswith(("a", "e", "i", "o", "u")) else f"a {noun}"


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


def trials_by_seed() -> dict[int, set[int]]:
    """Seed -> the numbers of events with which ``test_seeds`` runs it."""
    every = (
        *test_seeds.PLAIN, *test_seeds.FOUND, *test_seeds.LIMITS, *test_seeds.BUCKETS,
        *test_seeds.WITH_CALLERS, *test_seeds.WITH_ALL,
    )  # fmt: skip
    found: dict[int, set[int]] = {}
    for trial in every:
        found.setdefault(trial.seed, set()).add(trial.events)
    return found


ELSEWHERE = {9, 195993238}
"""Other tests look at those: ``test_equal_trials_give_equal_traces``, and ``test_scaling``."""
LONGER = {
    **dict.fromkeys(
        (
            6,
            90916227,
            159150755,
            258287463,
            310000171,
            311000105,
            312000120,
            313000117,
            313000179,
            314000352,
            315000081,
            315000117,
            317000043,
        ),
        500,
    ),
    20002: 150,
    51031: 200,
}


def test_every_seed_on_the_page_is_run_with_as_many_events_as_the_page_says():
    text = PAGE.read_text()
    start, end = (
        text.index("### Bugs that it has found"),
        text.index("## Every order, every await point"),
    )
    seeds: dict[int, int] = {}
    for line in text[start:end].splitlines():
        if line.startswith("| "):
            by = line.split("|")[1]
            short = "(" in by and "events" not in by
            told = re.sub(r"\([^)]*\)", "", by) if "seed" in by else ""
            for seed in map(int, re.findall(r"\d+", told)):
                seeds[seed] = LONGER.get(seed, 60 if seed >= 60_000 or short else 120)
    limits = text[text.index("## What does not hold") :]
    seeds |= {
        int(seed): 60
        for names in re.findall(r"\(seeds? ([\d, ]+)", limits)
        for seed in re.findall(r"\d+", names)
    }
    run = trials_by_seed()
    assert {s: n for s, n in seeds.items() if n not in run.get(s, set())}.keys() == ELSEWHERE


if __name__ == "__main__":
    text = PAGE.read_text()
    start = text.index(HEAD)
    end = text.index("\n\n", start)
    PAGE.write_text(text[:start] + table().rstrip() + text[end:])
    sys.stdout.write(f"{len(ALL_KINDS)} kinds\n")
