"""What cannot be listed is told once a problem, its fix once for all kinds, and again at growing
intervals.
"""

import asyncio
import logging
import random

import pytest

from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Forbidden,
    OutcomeUnknown,
    Resource,
)
from extender.kube.reflector import Reflector
from extender.kube.transport import error_of
from extender.kube.troubles import Troubles
from tests.kube.fakes import ListWatchApi
from tests.kube.test_reflector import Mirror

pytestmark = pytest.mark.looptime

KINDS = [PODS, NODES, NAMESPACES, STATEFULSETS, ADAPTERPOOLS]
UNKNOWN_GROUP = error_of(404, {}, b"404 page not found\n")
"""As an API server answers that has never heard of the group."""


@pytest.mark.parametrize("resource", [ADAPTERPOOLS, VPODS], ids=lambda resource: resource.plural)
def test_a_group_that_the_server_has_never_heard_of_is_a_crd_that_is_missing(resource: Resource):
    line = Troubles().line(resource, UNKNOWN_GROUP, 0.0)
    assert line.startswith(
        f"the cluster does not serve {resource.plural}.vreplica.dev. Our kinds are not ins"
    )
    assert line.index("helm") < line.index("kubectl apply -k manifests/crds")


@pytest.mark.parametrize("resource", KINDS, ids=lambda resource: resource.plural)
@pytest.mark.parametrize(
    ("error", "fix"),
    [
        pytest.param(
            Forbidden(403, "Forbidden", "no"), "kubectl auth can-i --list", id="no rights"
        ),
        pytest.param(
            OutcomeUnknown(0, "ConnectionFailed", "refused"), "is the cluster up", id="no cluster"
        ),
        pytest.param(ApiError(401, "Unauthorized", "Unauthorized"), "log in again", id="not known"),
    ],
)
def test_every_kind_is_told_with_its_fix(resource: Resource, error: ApiError, fix: str):
    line = Troubles().line(resource, error, 0.0)
    assert resource.plural in line
    assert fix in line


def test_kinds_with_the_same_trouble_are_told_each_and_the_fix_once():
    troubles = Troubles()
    lines = [troubles.line(kind, Forbidden(403, "Forbidden", "no"), 0.0) for kind in KINDS]
    assert all(lines)
    assert ["can-i" in line for line in lines] == [True, False, False, False, False]


async def test_a_trouble_that_stays_is_told_at_growing_intervals(caplog: pytest.LogCaptureFixture):
    reflector = Reflector(
        ListWatchApi([UNKNOWN_GROUP] * 5000), ADAPTERPOOLS, Mirror(), rng=random.Random(1)
    )
    running = asyncio.create_task(reflector.run())
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(3600.0)
    assert reflector.errors["NotFound"] > 60
    assert 3 <= len(caplog.records) <= 12
    assert reflector.problem == listed_line()
    running.cancel()
    await asyncio.wait({running})


def listed_line() -> str:
    return Troubles().line(ADAPTERPOOLS, UNKNOWN_GROUP, 0.0)


def test_what_was_quiet_for_long_is_told_as_new():
    troubles, error = Troubles(), Forbidden(403, "Forbidden", "no")
    assert troubles.line(PODS, error, 0.0)
    assert not troubles.line(PODS, error, 10.0)
    assert "can-i" in troubles.line(PODS, error, 10_000.0)
    assert not troubles.line(PODS, error, 10_059.0)
    assert troubles.line(PODS, error, 10_061.0)
