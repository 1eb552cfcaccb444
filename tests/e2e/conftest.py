"""Fixtures of the end-to-end suite: one control plane a worker, one back end a test.

Theory of operation. A scenario waits for most of its time (for a lease to run out, a node to be
missed, a back-off), so several workers (pytest-xdist) run side by side, and nothing is shared
between them: each has a control plane of its own and ports of its own. ``control_plane`` is started
by the first test that needs the real one and skips, with the reason, where it cannot run; tests on
the embedded cluster run everywhere. ``backend`` gives every test that names it two runs. Fixtures
that start processes are synchronous at session scope (nothing of a control plane is bound to an
event loop) and asynchronous at function scope. When a test fails, the end of every log and the
folder they are in are part of its report.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.backend import Backend
from tests.e2e.build import BuildFailed, ControlPlaneUnavailable, ready_binaries
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.forks import Forks
from tests.e2e.guarded import Guarded, a_guarded_cluster
from tests.e2e.processes import Processes
from tests.e2e.real import RealBackend
from tests.manifests import tool

TEST_TIMEOUT_S: Final = 180
"""Of one test with its fixtures: the first one starts the control plane."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are ``e2e``, with a time limit of their own; the ``long`` ones come
    first.

    Workers take tests in this order: what takes longest must not be begun when the others are done.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs' ends to a failure's report."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, RealBackend | EmbeddedBackend):
                report.sections.append(("logs of the back end", value.log_tails()))
                break
    return report


@pytest.fixture(scope="session", autouse=True)
def forked_programs() -> Iterator[None]:
    """Our own programs need no interpreter and no imports of their own at each start."""
    with Forks() as forks:
        Processes.forks = forks
        yield
        Processes.forks = None


def _running(directory: Path, settings: Settings | None = None) -> Iterator[ControlPlane]:
    try:
        binaries = ready_binaries()
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))
    running = ControlPlane(binaries, directory, settings)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The real control plane, without a kube-scheduler; skips where there is none."""
    yield from _running(tmp_path_factory.mktemp("controlplane"))


@pytest.fixture(scope="module")
def own_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One that no other module uses, with the module's ``SETTINGS`` where it has any."""
    settings = getattr(request.module, "SETTINGS", None)
    yield from _running(tmp_path_factory.mktemp("own-controlplane"), settings)


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The program; skips where there is none."""
    try:
        return ready_binaries().program("kubectl")
    except (ControlPlaneUnavailable, BuildFailed) as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def _helm_and_kubectl() -> None:
    """Skips where one of both is missing."""
    try:
        tool.helm()
        tool.kubectl()
    except (tool.ToolUnavailable, ControlPlaneUnavailable) as reason:
        pytest.skip(str(reason))


@pytest.fixture
async def real(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[RealBackend]:
    """The real back end alone, for facts about Kubernetes."""
    async with RealBackend(control_plane, tmp_path) as backend:
        yield backend


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedBackend]:
    """The embedded back end alone."""
    async with EmbeddedBackend(tmp_path) as backend:
        yield backend


@pytest.fixture(params=["real", "embedded"])
def backend_name(request: pytest.FixtureRequest) -> str:
    """Which back end; narrow it with ``@pytest.mark.parametrize("backend_name", ["real"])``."""
    return str(request.param)


@pytest.fixture
def _control_plane_if_real(
    backend_name: str, request: pytest.FixtureRequest
) -> ControlPlane | None:
    # Synchronous: the control plane is started by a loop of its own, which cannot be within a
    # running one.
    if backend_name != "real":
        return None
    running: ControlPlane = request.getfixturevalue("control_plane")
    return running


@pytest.fixture
async def backend(
    _control_plane_if_real: ControlPlane | None, tmp_path: Path
) -> AsyncIterator[Backend]:
    """Each back end in turn."""
    if _control_plane_if_real is not None:
        async with RealBackend(_control_plane_if_real, tmp_path) as real_backend:
            yield real_backend
    else:
        async with EmbeddedBackend(tmp_path) as embedded_backend:
            yield embedded_backend


@pytest.fixture
async def guarded(real: RealBackend) -> AsyncIterator[Guarded]:
    """A real API server with the shipped policies and no webhook: it decides alone."""
    async with a_guarded_cluster(real) as there:
        yield there
