"""What tests of the rendered chart need."""

import pytest

from tests.manifests.tool import ToolUnavailable, helm


@pytest.fixture(scope="session")
def needs_helm() -> None:
    """Skips where there is no helm; before fixtures of a module, which would fail there."""
    try:
        helm()
    except ToolUnavailable as missing:
        pytest.skip(str(missing))
