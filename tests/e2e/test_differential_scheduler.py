"""The embedded kube-scheduler decides as kube-scheduler 1.37 does: some fixed clusters of ``python
-m tests.differential scheduler``.
"""

from pathlib import Path

import pytest

from tests.differential.scheduler_cases import scheduler_case
from tests.differential.scheduler_real import RealScheduler
from tests.differential.scheduler_run import Tally, differences
from tests.e2e.build import VERSIONS, ControlPlaneUnavailable, kubernetes_module

SEEDS = range(15)
pytestmark = pytest.mark.skipif(
    kubernetes_module().folder != VERSIONS[-1],
    reason=f"the embedded cluster follows Kubernetes {VERSIONS[-1]}",
)


@pytest.mark.timeout(300)
async def test_the_same_nodes_fit_for_the_same_reasons_with_the_same_scores(tmp_path: Path):
    try:
        scheduler = RealScheduler(tmp_path)
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))
    tally = Tally()
    async with scheduler.running() as real:
        for seed in SEEDS:
            case = scheduler_case(seed)
            if found := await differences(real, case, tally):
                # Informers may lag; what stays is a difference.
                found = await differences(real, case)
            assert not found, f"replay: python -m tests.differential scheduler --seed {seed}"
    assert tally.pods > 45
    assert tally.scores > 500
