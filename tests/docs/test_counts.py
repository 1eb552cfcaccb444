"""Numbers on the pages that grow with the code: whoever adds one of something corrects them.

The number of deliberate breaks is held by ``tests/mutants/test_mutants.py``, that of kills by
``tests/simulation/test_kill.py``.
"""

import re

import pytest

from extender.lab.simulation.world.profile import ALL_KINDS
from tests.docs.pages import ROOT
from tests.e2e.build import VERSIONS, Module
from tests.simulation.await_points import UNREACHED
from tests.simulation.awaiting_modules import CHECKED
from tests.simulation.exhaustive.situations import SITUATIONS

README = "README.md"
RELIABILITY = "docs/reliability.md"


@pytest.mark.parametrize(
    ("page", "sentence", "number"),
    [
        pytest.param(
            README, r"runs the shipped code under (\d+) kinds", len(ALL_KINDS), id="README: faults"
        ),
        pytest.param(RELIABILITY, r"There are (\d+) kinds", len(ALL_KINDS), id="faults"),
        pytest.param(RELIABILITY, r"in (\d+)\s+situations", len(SITUATIONS), id="situations"),
        pytest.param(
            RELIABILITY, r"every `await` of (\d+) modules", len(CHECKED), id="modules with awaits"
        ),
        pytest.param(
            RELIABILITY,
            r"except (\d+) that are listed with the reason",
            len(UNREACHED),
            id="reasons why not",
        ),
    ],
)
def test_the_page_says_how_many_there_are(page: str, sentence: str, number: int):
    told = re.findall(sentence, (ROOT / page).read_text())
    assert told == [str(number)]


def test_the_table_of_versions_has_each_that_there_is_a_module_for_and_none_has_failed():
    """``make e2e-matrix`` writes it; a module for a new version comes with its row."""
    rows = re.findall(
        r"^\| (1\.\d+\.\d+) \| \d+ \| (\d+) \|",
        (ROOT / "docs/install.md").read_text(),
        re.MULTILINE,
    )
    known = [Module(version, ()).kubernetes.removeprefix("v") for version in reversed(VERSIONS)]
    assert rows == [(version, "0") for version in known]


def test_the_page_for_authors_of_adapters_has_the_whole_worker():
    worker = (ROOT / "clients/python/examples/worker.py").read_text()
    _, _, code = worker.partition('"""\n\n')
    assert f"```python\n{code}```" in (ROOT / "docs/adapters.md").read_text()
