"""Of the replica at ``--server``."""

import pytest

from extender.cli.doctor.checks.facts import Replica
from tests.cli.doctor.breaking import BROKEN, Break, E, W, assert_found_alone


def replica(**fields: object) -> Break:
    return lambda scene: scene.more.update(replica=Replica("http://r", **fields))  # type: ignore[arg-type]


ROWS = [
    pytest.param(
        replica(problem="no answer: refused"),
        "replica",
        E,
        "no answer",
        id="a replica out of reach",
    ),
    pytest.param(
        replica(ready="caches not synced: pods\n"),
        "replica",
        E,
        "caches not synced",
        id="a replica that is not ready",
    ),
    pytest.param(
        replica(
            ready="ok\n", state={"configuration": {"needsRestart": ["server.port"], "problem": ""}}
        ),
        "replica",
        W,
        "needs a restart: server.port",
        id="a replica that needs a restart",
    ),
    pytest.param(
        replica(ready="ok\n", state={"leases": [{"lease": "vreplica-scheduler", "leader": "two"}]}),
        "replica",
        W,
        "it sees two lead",
        id="a replica that believes in another leader",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)
