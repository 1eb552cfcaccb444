"""Of hand-over: the listener for adapters, and adapters that do not acknowledge."""

from collections.abc import Callable
from typing import Any

import pytest

from extender.cli.doctor.checks.verdict import Verdict
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION, COMPONENT
from tests.cli.doctor.breaking import BROKEN, Break, W, assert_found_alone
from tests.cli.doctor.scene import Scene, stamp

OLD, NEW = stamp(61), stamp(59)
FIELDS: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{ASSIGNMENT_ANNOTATION}": {}}}}


def no_handoff(scene: Scene) -> None:
    del scene.first("adapterpools")["spec"]["handoff"]


def no_listener(scene: Scene) -> None:
    (container,) = scene.first("deployments")["spec"]["template"]["spec"]["containers"]
    container["ports"] = []


def no_evictions(scene: Scene) -> None:
    """As without the chart's value adapters.evictions."""
    del scene.first("validatingwebhookconfigurations")["webhooks"][-1]


def expire(scene: Scene) -> None:
    annotations = scene.first("pods")["metadata"]["annotations"]
    annotations[ACKNOWLEDGED_ANNOTATION] = '{"generation":3,"serving":0,"expired":true}'


def be_busy(written: str) -> Callable[[Scene], None]:
    """The first pod was told of two shares, and has said that it does not serve one of them."""

    def told(scene: Scene) -> None:
        tell(3, 3, written)(scene)
        annotations = scene.first("pods")["metadata"]["annotations"]
        serve = '{"state":"Serve"}'
        annotations[ASSIGNMENT_ANNOTATION] = (
            f'{{"generation":3,"shares":{{"a":{serve},"b":{serve}}}}}'
        )
        annotations[ACKNOWLEDGED_ANNOTATION] = '{"generation":3,"serving":1,"busy":["b"]}'

    return told


def tell(
    generation: int, acknowledged: int | None, written: str | None, created: str = stamp(600)
) -> Callable[[Scene], None]:
    """The first pod is told ``generation`` and has acknowledged another one. ``written``: when the
    service wrote it, as the API server says; None for a server that does not say.
    """

    def told(scene: Scene) -> None:
        metadata = scene.first("pods")["metadata"]
        metadata["creationTimestamp"] = created
        annotations: dict[str, Any] = metadata["annotations"]
        annotations[ASSIGNMENT_ANNOTATION] = f'{{"generation":{generation},"pod":"a/b"}}'
        if acknowledged is not None:
            annotations[ACKNOWLEDGED_ANNOTATION] = f'{{"generation":{acknowledged},"serving":0}}'
        if written is not None:
            entry = {"manager": COMPONENT, "time": written, "fieldsV1": FIELDS}
            metadata["managedFields"] = [{"manager": "kubelet", "time": OLD}, entry]

    return told


ROWS = [
    pytest.param(no_handoff, "handoff", W, "on, and no AdapterPool has", id="nobody uses it"),
    pytest.param(no_listener, "handoff", W, "is off: adapters of", id="it is off"),
    pytest.param(no_evictions, "evictions", W, "do not wait for the adapters of", id="no webhook"),
    pytest.param(
        expire,
        *("handoff", W, "dispatcher-0 has not renewed its lease"),
        id="lease run out",
    ),
    pytest.param(
        tell(3, 2, OLD),
        *("handoff", W, "dispatcher-0 was told generation 3 over a minute ago, and has acknowl"),
        id="behind",
    ),
    pytest.param(
        tell(3, None, OLD),
        *("handoff", W, "and has acknowledged none"),
        id="silent",
    ),
    pytest.param(
        tell(1, None, None),
        *("handoff", W, "and has acknowledged none"),
        id="silent, on a server that keeps no times",
    ),
    pytest.param(
        be_busy(OLD),
        *("handoff", W, "dispatcher-0 has not begun to serve 1 share that"),
        id="busy",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(tell(3, 3, OLD), id="acknowledged"),
        pytest.param(tell(3, 2, NEW), id="told just now"),
        pytest.param(be_busy(NEW), id="told just now, and busy"),
        pytest.param(tell(3, 2, None), id="nobody knows when"),
    ],
)
def test_an_adapter_that_may_still_take_its_time_is_no_problem(told: Break):
    scene = Scene()
    told(scene)
    assert scene.results()["handoff"].verdict is Verdict.OK


def test_it_is_not_well_while_nobody_has_acknowledged_anything():
    scene = Scene()
    tell(1, None, None, created=NEW)(scene)
    found = scene.results()["handoff"]
    assert (found.verdict, found.summary) == (
        Verdict.UNKNOWN,
        "acknowledged what they were told: 0 of 1 adapter, in 1 pool with spec.handoff",
    )
    assert "again in a minute" in found.fix


def test_how_many_adapters_have_acknowledged_is_told():
    scene = Scene()
    tell(3, 3, OLD)(scene)
    second = scene.items("pods")[1]["metadata"]
    second["creationTimestamp"] = NEW
    second["annotations"][ASSIGNMENT_ANNOTATION] = '{"generation":1,"pod":"a/c"}'
    found = scene.results()["handoff"]
    assert (found.verdict, found.summary) == (
        Verdict.OK,
        "acknowledged what they were told: 1 of 2 adapters, in 1 pool with spec.handoff",
    )


def test_while_no_adapter_is_told_anything_nothing_is_said_to_be_acknowledged():
    found = Scene().results()["handoff"]
    assert (found.verdict, found.summary) == (
        Verdict.OK,
        "no adapter has been told anything yet, in 1 pool with spec.handoff",
    )


def test_a_pod_of_a_pool_that_does_not_hand_over_is_not_awaited():
    scene = Scene()
    no_handoff(scene)
    no_listener(scene)
    tell(3, 2, OLD)(scene)
    assert scene.results()["handoff"].verdict is Verdict.SKIPPED


def test_where_there_is_no_deployment_nothing_is_said_of_the_listener():
    scene = Scene()
    scene.listed["deployments"] = []
    assert scene.results()["handoff"].verdict is Verdict.OK


def test_evictions_have_to_wait_with_mode_exclusive_too():
    scene = Scene()
    no_evictions(scene)
    scene.first("adapterpools")["spec"]["handoff"] = {"mode": "Exclusive"}
    assert scene.results()["evictions"].verdict is Verdict.WARNING


@pytest.mark.parametrize("mode", ["None", None], ids=["mode None", "no mode"])
def test_without_a_mode_nobody_asks_for_evictions(mode: str | None):
    scene = Scene()
    no_evictions(scene)
    scene.first("adapterpools")["spec"]["handoff"] = {} if mode is None else {"mode": mode}
    assert scene.results()["evictions"].verdict is Verdict.SKIPPED
