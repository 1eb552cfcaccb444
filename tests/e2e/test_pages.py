"""The pages whose commands need kubectl do what they show."""

from pathlib import Path

import pytest

from tests.docs.pages import Page, pages
from tests.docs.scenes import KUBECTL, run_page
from tests.e2e.build import ControlPlaneUnavailable, ready_binaries

SHOWN = [page for page in pages() if page.scene == KUBECTL]


@pytest.fixture(scope="module")
def programs() -> list[Path]:
    try:
        return [ready_binaries().program("kubectl").parent]
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.long
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_the_page_does_what_it_shows(page: Page, tmp_path: Path, programs: list[Path]):
    assert run_page(page, tmp_path, programs) == []
