"""What a state is worth at one moment."""

from extender.whatif.recording.measures import Sample, sample
from tests.support.builders import NS, Scene


def test_a_sample_counts_pods_slots_and_what_waits():
    scene = Scene(replicas=2, slots=4).pods(0, 1).vpod("a", 5, {0: 3}).vpod("b", 1, {1: 1})
    assert sample(scene.state, 7.0) == Sample(
        7.0, wanted=6, unplaced=2, pods=2, slots=8, used_slots=4
    )


def test_what_asks_for_a_pool_that_nobody_has_made_waits():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("lost", 3, pool=f"{NS}/nobodys")
    assert sample(scene.state, 7.0)[1:4] == (3, 3, 1)
