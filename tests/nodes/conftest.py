"""One cluster of real nodes with our chart and an adapter pool for all scenarios; skips where it
cannot run, and says why.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.build import KUBELET, ControlPlaneUnavailable, ready_binaries
from tests.manifests import tool
from tests.nodes.adapters import Adapters
from tests.nodes.cluster import Cluster, lacking
from tests.nodes.measurements import Measurements

TEST_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They are ``nodes``, with a time limit of their own, in the order of the file."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.nodes)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs' ends to a failure's report."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and cluster is not None:
        report.sections.append(("logs of the nodes", cluster.log_tails()))
    return report


@pytest.fixture(scope="session")
def measurements() -> Measurements:
    """What is told in docs/operations.md."""
    return Measurements()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Real nodes, Ready, with nothing installed."""
    if reason := lacking():
        pytest.skip(reason)
    try:
        tool.helm()
        ready_binaries(KUBELET)
    except (tool.ToolUnavailable, ControlPlaneUnavailable) as reason:
        pytest.skip(str(reason))
    # Not pytest's own folder: the path of a containerd's socket may have 108 characters at the
    # most.
    with tempfile.TemporaryDirectory(
        prefix="vreplica-nodes-", ignore_cleanup_errors=True
    ) as folder:
        async with Cluster(Path(folder)) as running:
            yield running
        await asyncio.sleep(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adapters(cluster: Cluster) -> Adapters:
    """The pool's helper; the first scenarios install and make it."""
    return Adapters(cluster)
