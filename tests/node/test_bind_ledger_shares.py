"""How pending pods share what is pending: by the room that each of them has, and by the weight of
what it takes.
"""

from tests.node.test_bind_ledger import carried
from tests.support.builders import Scene


def test_a_pod_on_which_others_stand_takes_less_of_what_is_pending():
    scene = (
        Scene(slots=5, replicas=2).pod(0, node="").pod(1, node="").vpod("b", 4, {0: 4}).vpod("a", 6)
    )
    assert [carried(scene, ordinal)[1] for ordinal in (0, 1)] == [{"a": 1}, {"a": 5}]


def test_heavy_vreplicas_leave_the_next_vpod_what_they_do_not_take():
    scene = (
        Scene(slots=5, replicas=2)
        .pod(0, node="")
        .pod(1, node="")
        .vpod("a", 2, weight=2)
        .vpod("b", 8)
    )
    assert [carried(scene, ordinal)[1] for ordinal in (0, 1)] == [{"a": 1, "b": 3}] * 2
