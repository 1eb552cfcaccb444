"""How long the leader remembers a vpod of a caller that has given everything back."""

import pytest

from extender.service.watching.caches import Caches
from extender.service.watching.external_vpods import ExternalVPods
from tests.support.builders import Scene, a_vpod

KEY = "tenant/a@broker.example.dev"


def give_back(scene: Scene) -> ExternalVPods:
    caches = Caches()
    caches.state = scene.state
    external = ExternalVPods(caches)
    vpod = a_vpod("a", 0, source="broker.example.dev")
    external.ask(vpod)
    external.note_answer(vpod, {})
    return external


@pytest.mark.parametrize(
    ("scene", "remembered"),
    [
        pytest.param(Scene(replicas=1).pod(0), False, id="all pods are bound and hold none of it"),
        pytest.param(Scene(replicas=1).pod(0, {KEY: 1}), True, id="a pod holds some of it"),
        pytest.param(Scene(replicas=2).pod(0), True, id="an ordinal has no pod"),
        pytest.param(
            Scene(replicas=2).pods(0).pod(1, {KEY: 1}).stateful_set(1).no_pod(1),
            True,
            id="an ordinal has gone with its pod, and may come back with it (seed 67193689)",
        ),
    ],
)
def test_a_vpod_that_gave_all_back_is_remembered_while_a_pod_may_bring_some_back(scene, remembered):
    assert (KEY in give_back(scene)) is remembered


def test_it_is_forgotten_with_what_the_gone_ordinal_held():
    scene = Scene(replicas=2).pods(0).pod(1, {KEY: 1}).stateful_set(1).no_pod(1)
    external = give_back(scene)
    scene.state.expire(100.0)
    scene.state.expire(120.0)
    external.forget_given_back()
    assert KEY not in external
