"""The list of mutants is whole: each applies exactly once, and what is to catch it exists. `make
mutants` runs them.
"""

import ast
import re
from functools import cache

import pytest

from tests.mutants.__main__ import share_of
from tests.mutants.mutant import ROOT, DoesNotApply, Mutant
from tests.mutants.mutants import MUTANTS

MUTANTS_MIN = 30


def named(mutants: tuple[Mutant, ...]) -> list[object]:
    return [pytest.param(mutant, id=mutant.name) for mutant in mutants]


@cache
def node_ids_of(file: str) -> frozenset[str]:
    """Node ids of a file's tests, without parameters."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{file}::{node.name}" if isinstance(node, ast.ClassDef) else file
        found.update(
            f"{prefix}::{test.name}"
            for test in inner
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
            and test.name.startswith("test")
        )
    return frozenset(found)


def test_there_are_enough_and_no_two_have_one_name():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= MUTANTS_MIN
    assert sorted(set(names)) == sorted(names)


def test_the_page_says_how_many_there_are():
    assert f"applies {len(MUTANTS)} breaks" in (ROOT / "docs/reliability.md").read_text()


def test_who_notices_what_on_the_page_is_what_the_mutants_say():
    _, _, rest = (
        (ROOT / "docs/reliability.md")
        .read_text()
        .partition("| rule | deliberate breaks | caught by |\n")
    )
    rows = [row.strip("| ").split(" | ") for row in rest.partition("\n\n")[0].splitlines()[1:]]
    files = {mutant.name: {test.partition("::")[0] for test in mutant.tests} for mutant in MUTANTS}
    assert len(rows) > 1
    for _, breaks, by in rows:
        assert set().union(*(files[name] for name in breaks.split("; "))) == set(
            re.findall(r"`(\S+)`", by)
        )


@cache
def tree_of(file: str) -> str:
    return ast.dump(ast.parse((ROOT / file).read_text()))


@pytest.mark.parametrize("mutant", named(MUTANTS))
def test_it_still_applies_and_is_python(mutant: Mutant):
    broken = mutant.applied_to((ROOT / mutant.file).read_text())
    assert ast.dump(ast.parse(broken)) != tree_of(mutant.file)


@pytest.mark.parametrize("mutant", named(MUTANTS))
def test_what_is_to_catch_it_exists(mutant: Mutant):
    assert mutant.caught_by
    known = [node.partition("[")[0] for node in mutant.tests]
    assert [node for node in known if node not in node_ids_of(node.partition("::")[0])] == []


def test_a_text_that_stands_elsewhere_too_has_to_be_looked_at_again():
    mutant = Mutant("twice", "extender/x.py", "a", "b", "", ("simulate --seed 1",))
    assert mutant.applied_to("x a x") == "x b x"
    for text in ("a a", "x"):
        with pytest.raises(DoesNotApply, match="twice"):
            mutant.applied_to(text)


def test_the_shares_of_one_seed_are_all_mutants_each_once_and_another_seed_draws_others():
    shares = [share_of(MUTANTS, number, 5, seed="a") for number in range(1, 6)]
    names = [mutant.name for share in shares for mutant in share]
    assert sorted(names) == sorted(mutant.name for mutant in MUTANTS)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert shares[0] == share_of(MUTANTS, 1, 5, seed="a") != share_of(MUTANTS, 1, 5, seed="b")


@pytest.mark.parametrize(
    "text",
    [
        "f(a, 'b c')",
        "f(\n    a,\n    'b c',\n)",
        "f(  # why\n    a, 'b c'\n)",
    ],
    ids=["on one line", "broken by the formatter", "with a comment"],
)
def test_how_lines_are_broken_does_not_matter(text: str):
    mutant = Mutant("laid out", "extender/x.py", "f(a, 'b c')", "g()", "", ("simulate --seed 1",))
    assert mutant.applied_to(f"x = {text} + 1") == "x = g() + 1"


@pytest.mark.parametrize("text", ["f(a, 'b  c')", "f(a, b, 'b c')", "f(a), 'b c'", "ff(a, 'b c')"])
def test_other_code_is_not_taken_for_it(text: str):
    mutant = Mutant("laid out", "extender/x.py", "f(a, 'b c')", "g()", "", ("simulate --seed 1",))
    with pytest.raises(DoesNotApply):
        mutant.applied_to(text)
