"""An adapter that is written with the Go library keeps the contract."""

import pytest

from extender.lab.adapter_kit.rules import RULES
from extender.lab.adapter_kit.run import Kit, Outcome
from tests.e2e.build import ControlPlaneUnavailable
from tests.e2e.go_tool import ADAPTER_WORKER


async def test_the_worker_of_the_go_library_keeps_all_rules_those_of_leases_too():
    try:
        program = ADAPTER_WORKER.ready()
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))
    results = await Kit(command=[str(program)], exclusive=True).run(lambda _result: None)
    broken = [result for result in results if result.outcome is not Outcome.KEPT]
    assert broken == []
    assert len(results) == len(RULES)
    assert all(result.work_was_seen for result in results)
