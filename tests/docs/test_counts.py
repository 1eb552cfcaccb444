"""Numbers on the pages that grow with the code: whoever adds one of something corrects them.

The number of deliberate breaks is held by ``tests/mutants/test_mutants.py``, that of kills by ``tests/simulation/test_kill.py``.
"""

import re

import pytest

from extender.simulation.profile import ALL_KINDS
from tests.docs.pages import ROOT
from tests.simulation.await_points import UNREACHED
from tests.simulation.awaiting_modules import CHECKED
from tests.simulation.exhaustive.situations import SITUATIONS

README = "README.md"
RELIABILITY = "docs/reliability.md"


@pytest.mark.parametrize(
    ("page", "sentence", "number"),
    [
        pytest.param(README, r"runs the shipped code under (\d+) kinds", len(ALL_KINDS), id="README: faults"),
        pytest.param(RELIABILITY, r"There are (\d+) kinds", len(ALL_KINDS), id="faults"),
        pytest.param(RELIABILITY, r"in (\d+)\s+situations", len(SITUATIONS), id="situations"),
        pytest.param(RELIABILITY, r"every `await` of (\d+) modules", len(CHECKED), id="modules with awaits"),
        pytest.param(RELIABILITY, r"the reason why not \((\d+) of them", len(UNREACHED), id="reasons why not"),
    ],
)  # fmt: skip
def test_the_page_says_how_many_there_are(page: str, sentence: str, number: int):
    told = re.findall(sentence, (ROOT / page).read_text())
    assert told == [str(number)]
