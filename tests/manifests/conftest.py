"""What tests of the rendered chart need."""

import pytest

from tests.manifests.tool import ToolUnavailable, helm


@pytest.fixture
def needs_helm() -> None:
    """Skips where there is no helm."""
    try:
        helm()
    except ToolUnavailable as missing:
        pytest.skip(str(missing))
