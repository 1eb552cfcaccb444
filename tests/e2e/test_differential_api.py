"""The embedded API server against the real one: fixed sequences of ``tests/differential``, more
with ``python -m tests.differential api``.
"""

from pathlib import Path

import pytest

from tests.differential.api_run import compare_all
from tests.differential.api_sides import real_api
from tests.e2e.build import VERSIONS, ControlPlaneUnavailable, kubernetes_module, ready_binaries

SEEDS = range(1, 21)
pytestmark = pytest.mark.skipif(
    kubernetes_module().folder != VERSIONS[-1],
    reason=f"the embedded cluster follows Kubernetes {VERSIONS[-1]}",
)


async def test_both_api_servers_answer_every_operation_alike(tmp_path: Path):
    try:
        binaries = ready_binaries()
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))
    async with real_api(binaries, tmp_path) as real:
        totals = await compare_all(real, SEEDS)
    shown = "\n".join(line for verdict in totals.failed for line in verdict.lines())
    assert not totals.failed, shown
    assert totals.succeeded > 5 * len(SEEDS)
