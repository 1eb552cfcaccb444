"""docs/troubleshooting.md: every reason has a row, and every word of a row is one that the code
says.
"""

import re

import pytest

from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ROWS = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| `")]
SOURCE = "\n".join(
    path.read_text()
    for folder in ("extender", "webhook")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
OF_OTHERS = {"address already in use", "exists and cannot be imported into the current release"}
"""Words of the operating system and of helm."""


@pytest.mark.parametrize("reason", [*ConflictReason, *MoveReason])
def test_every_reason_is_explained(reason):
    assert f"`{reason}`" in PAGE


@pytest.mark.parametrize(
    "words", sorted({word for row in ROWS for word in re.findall(r"`([^`]+)`", row)})
)
def test_what_is_explained_is_said(words):
    if words in OF_OTHERS:
        return
    for part in re.split(r"=\w+$| \.\.\. ", words):
        assert not part or part in SOURCE, part
