"""A memory with a limit: who makes room for whom."""

from collections import OrderedDict

from extender.model.bounded import put_bounded


def test_the_oldest_entry_makes_room_for_a_new_one():
    known: OrderedDict[str, int] = OrderedDict()
    for key in ("a", "b", "c"):
        put_bounded(known, key, 1, 2)
    assert list(known) == ["b", "c"]


def test_an_entry_that_is_put_again_is_the_newest_and_drops_no_other():
    known = OrderedDict({"a": 1, "b": 1})
    put_bounded(known, "a", 2, 2)
    assert list(known.items()) == [("b", 1), ("a", 2)]
