"""The two assume caches: which versions they take, what readers see, and what handlers are told and
when.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.engine.cache import assume
from extender.engine.cache.assume import AssumeCache
from extender.engine.cache.passive_assume import PassiveAssumeCache
from extender.model.errors import AssumeError, NotFound, VersionConflict, WrongType
from extender.model.resource_versions import parse_version


@dataclass(frozen=True)
class Thing:
    key: str
    resource_version: str
    uid: str = ""
    note: str = ""


@dataclass
class Told:
    """A handler that writes down what it was told."""

    lines: list[str] = field(default_factory=list)

    def on_add(self, obj: Thing, initial_list: bool, /) -> None:
        self._note(f"{'initial ' if initial_list else ''}add {show(obj)}")

    def on_update(self, old: Thing, new: Thing, /) -> None:
        self._note(f"update {show(old)} -> {show(new)}")

    def on_delete(self, obj: Thing, /) -> None:
        self._note(f"delete {show(obj)}")

    def _note(self, line: str) -> None:
        self.lines.append(line)


def show(thing: Thing) -> str:
    return f"{thing.key}@{thing.resource_version}{thing.note}"


def a(version: int | str, note: str = "", uid: str = "") -> Thing:
    return Thing("ns/a", str(version), uid, note)


@pytest.fixture
def cache() -> AssumeCache[Thing]:
    cache: AssumeCache[Thing] = AssumeCache({"note": lambda thing: thing.note})
    cache.add(a(5))
    return cache


@pytest.fixture
def told(cache: AssumeCache[Thing]) -> Told:
    told = Told()
    cache.add_event_handler(told)
    told.lines.clear()
    return told


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("5", 5, id="plain"),
        pytest.param("+5", 5, id="plus"),
        pytest.param("-5", -5, id="minus"),
        pytest.param("007", 7, id="leading zeros"),
        pytest.param(str(2**63 - 1), 2**63 - 1, id="largest"),
        pytest.param(str(2**63), None, id="too large"),
        pytest.param("9" * 5000, None, id="absurd"),
        pytest.param("", None, id="empty"),
        pytest.param("+", None, id="sign only"),
        pytest.param("1_0", None, id="underscore"),
        pytest.param(" 5", None, id="space"),
        pytest.param("\u0665", None, id="other digits"),
        pytest.param("a", None, id="letter"),
    ],
)
def test_a_version_is_read_as_go_does(text: str, number: int | None) -> None:
    assert parse_version(text) == number


class TestAfterAWrite:
    def test_a_newer_event_replaces_both_forms(self, cache: AssumeCache[Thing], told: Told) -> None:
        cache.update(a(6))
        assert (cache.get("ns/a"), cache.get_api("ns/a")) == (a(6), a(6))
        assert told.lines == ["update ns/a@5 -> ns/a@6"]

    @pytest.mark.parametrize("version", [4, 5, "a", ""])
    def test_an_event_that_is_not_newer_changes_nothing(
        self, cache: AssumeCache[Thing], told: Told, version: int | str
    ) -> None:
        cache.update(a(version, "x"))
        assert (cache.get("ns/a"), cache.get_api("ns/a")) == (a(5), a(5))
        assert told.lines == []

    def test_an_object_of_unreadable_version_is_stored_and_then_never_replaced(
        self, cache: AssumeCache[Thing]
    ) -> None:
        cache.add(Thing("b", "x"))
        cache.update(Thing("b", "6"))
        assert cache.get("b").resource_version == "x"

    @pytest.mark.parametrize("version", [5, 6])
    def test_assume_takes_a_version_that_is_not_older(
        self, cache: AssumeCache[Thing], told: Told, version: int
    ) -> None:
        cache.assume(a(version, "x"))
        assert (cache.get("ns/a"), cache.get_api("ns/a")) == (a(version, "x"), a(5))
        assert told.lines == [f"update ns/a@5 -> ns/a@{version}x"]

    @pytest.mark.parametrize("version", ["4", "a", ""])
    def test_assume_refuses_an_older_or_unreadable_version(
        self, cache: AssumeCache[Thing], version: str
    ) -> None:
        with pytest.raises(VersionConflict) as refused:
            cache.assume(a(version))
        assert (refused.value.stored, refused.value.offered) == ("5", version)
        assert cache.get("ns/a") == a(5)

    def test_assume_refuses_an_unknown_key_and_what_is_no_object(
        self, cache: AssumeCache[Thing]
    ) -> None:
        with pytest.raises(NotFound):
            cache.assume(Thing("b", "9"))
        with pytest.raises(WrongType):
            cache.assume(1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("raw", [None, 1, "text"])
    def test_events_of_what_is_no_object_are_ignored(
        self, cache: AssumeCache[Thing], told: Told, raw: object
    ) -> None:
        for event in (cache.add, cache.update, cache.delete):
            event(raw)  # type: ignore[arg-type]
        assert (len(cache), told.lines) == (1, [])

    def test_restore_goes_back_to_the_api_form(self, cache: AssumeCache[Thing], told: Told) -> None:
        cache.assume(a(5, "x"))
        cache.restore("ns/a")
        cache.restore("ns/a")
        cache.restore("unknown")
        assert cache.get("ns/a") == a(5)
        assert told.lines == ["update ns/a@5 -> ns/a@5x", "update ns/a@5x -> ns/a@5"]

    def test_the_echo_of_a_write_confirms_it(self, cache: AssumeCache[Thing]) -> None:
        cache.assume(a(7, "x"))
        cache.update(a(6))
        assert (cache.get("ns/a"), cache.get_api("ns/a")) == (a(7, "x"), a(6))
        cache.update(a(7, "x"))
        cache.restore("ns/a")
        assert (cache.get("ns/a"), cache.get_api("ns/a")) == (a(7, "x"), a(7, "x"))

    def test_a_late_event_behind_the_api_form_is_ignored(self, cache: AssumeCache[Thing]) -> None:
        cache.assume(a(7, "x"))
        cache.update(a(4))
        assert cache.get_api("ns/a") == a(5)

    def test_delete_is_by_key_whatever_the_version(
        self, cache: AssumeCache[Thing], told: Told
    ) -> None:
        cache.assume(a(7, "x"))
        cache.delete(a(1))
        assert "ns/a" not in cache
        assert told.lines[-1] == "delete ns/a@7x"
        with pytest.raises(NotFound):
            cache.get("ns/a")
        with pytest.raises(NotFound):
            cache.get_api("ns/a")

    def test_delete_of_an_unknown_key_tells_nobody(
        self, cache: AssumeCache[Thing], told: Told
    ) -> None:
        cache.delete(Thing("b", "1"))
        assert told.lines == []

    @pytest.mark.parametrize(
        ("stored", "gone", "stays"),
        [
            pytest.param(a(9, uid="new"), a(8, uid="old"), True, id="older and another"),
            pytest.param(a(9, uid="new"), a(10, uid="old"), False, id="newer"),
            pytest.param(a(9, uid="new"), a(8, uid="new"), False, id="the same"),
            pytest.param(a(9, uid=""), a(8, uid="old"), False, id="stored without UID"),
            pytest.param(a(9, uid="new"), a(8, uid=""), False, id="deleted without UID"),
        ],
    )
    def test_the_late_delete_of_a_previous_incarnation(
        self, stored: Thing, gone: Thing, stays: bool
    ) -> None:
        cache: AssumeCache[Thing] = AssumeCache()
        cache.add(stored)
        cache.delete(gone)
        assert ("ns/a" in cache) == stays

    def test_lists_follow_the_latest_form(self, cache: AssumeCache[Thing]) -> None:
        cache.add(Thing("ns/b", "5", note="x"))
        assert cache.list("note", "x") == [Thing("ns/b", "5", note="x")]
        cache.assume(a(6, "x"))
        assert len(cache.list("note", "x")) == len(cache.list()) == 2
        cache.restore("ns/a")
        cache.delete(Thing("ns/b", "5"))
        assert (cache.list("note", "x"), cache.list("note", "")) == ([], [a(5)])


class TestBeforeAWrite:
    @pytest.fixture
    def passive(self, cache: AssumeCache[Thing]) -> PassiveAssumeCache[Thing]:
        return PassiveAssumeCache(cache)

    def test_assume_takes_the_stored_version_only(self, passive: PassiveAssumeCache[Thing]) -> None:
        for version in ("4", "6", "a"):
            with pytest.raises(VersionConflict):
                passive.assume(a(version))
        with pytest.raises(NotFound):
            passive.assume(Thing("b", "5"))
        with pytest.raises(WrongType):
            passive.assume(None)  # type: ignore[arg-type]
        passive.assume(a(5, "x"))
        assert (passive.get("ns/a"), passive.get_api("ns/a")) == (a(5, "x"), a(5))
        assert passive.assumed("ns/a") == a(5, "x")

    def test_another_stored_version_voids_the_assumption(
        self, cache: AssumeCache[Thing], passive: PassiveAssumeCache[Thing]
    ) -> None:
        told = Told()
        passive.add_event_handler(told)
        passive.assume(a(5, "x"))
        cache.update(a(6))
        assert (passive.get("ns/a"), passive.assumed("ns/a")) == (a(6), None)
        assert told.lines == [
            "initial add ns/a@5",
            "update ns/a@5 -> ns/a@5x",
            "update ns/a@5x -> ns/a@6",
        ]

    def test_a_deletion_voids_the_assumption(
        self, cache: AssumeCache[Thing], passive: PassiveAssumeCache[Thing]
    ) -> None:
        told = Told()
        passive.add_event_handler(told)
        passive.assume(a(5, "x"))
        cache.delete(a(5))
        assert told.lines[-1] == "delete ns/a@5x"
        cache.add(a(5))
        assert passive.get("ns/a") == a(5)

    @pytest.mark.parametrize(("version", "given_up"), [(5, True), (4, False), (6, False)])
    def test_restore_gives_up_what_was_assumed_at_that_version(
        self, passive: PassiveAssumeCache[Thing], version: int, given_up: bool
    ) -> None:
        passive.assume(a(5, "x"))
        passive.restore(a(version))
        assert passive.get("ns/a") == (a(5) if given_up else a(5, "x"))

    def test_an_assumption_does_not_move_the_index(
        self, passive: PassiveAssumeCache[Thing]
    ) -> None:
        passive.assume(a(5, "x"))
        assert passive.list("note", "") == [a(5, "x")]
        assert passive.list("note", "x") == []

    def test_old_is_what_was_last_told_also_when_the_store_moves_on_meanwhile(
        self, cache: AssumeCache[Thing]
    ) -> None:
        class First(Told):
            """Hears of each event before the passive cache does, and assumes on that."""

            def on_update(self, _old: Thing, new: Thing, /) -> None:
                passive.assume(replace(new, note="y"))

        cache.add_event_handler(First())
        passive = PassiveAssumeCache(cache)
        told = Told()
        passive.add_event_handler(told)
        passive.assume(a(5, "x"))
        cache.update(a(6))
        assert told.lines[1:] == ["update ns/a@5 -> ns/a@5x", "update ns/a@5x -> ns/a@6y"]


class TestHandlers:
    def test_a_late_handler_gets_what_is_there_also_of_an_indexed_cache(
        self, cache: AssumeCache[Thing]
    ) -> None:
        cache.assume(a(6, "x"))
        told = Told()
        cache.add_event_handler(told)
        assert told.lines == ["initial add ns/a@6x"]

    def test_a_change_made_by_a_handler_is_told_to_all_after_the_one_being_told(
        self, cache: AssumeCache[Thing]
    ) -> None:
        class Meddler(Told):
            def on_update(self, old: Thing, new: Thing, /) -> None:
                super().on_update(old, new)
                if new.resource_version == "6":
                    cache.update(a(7))

        first, second = Meddler(), Told()
        cache.add_event_handler(first)
        cache.add_event_handler(second)
        cache.update(a(6))
        assert (
            first.lines
            == second.lines
            == [
                "initial add ns/a@5",
                "update ns/a@5 -> ns/a@6",
                "update ns/a@6 -> ns/a@7",
            ]
        )

    def test_a_handler_that_raises_loses_one_event_and_nobody_else_any(
        self, cache: AssumeCache[Thing]
    ) -> None:
        class Broken(Told):
            def on_update(self, old: Thing, new: Thing, /) -> None:
                if new.resource_version == "6":
                    raise ValueError("broken")
                super().on_update(old, new)

        broken, sound = Broken(), Told()
        cache.add_event_handler(broken)
        cache.add_event_handler(sound)
        with pytest.raises(ValueError, match="broken"):
            cache.update(a(6))
        cache.update(a(7))
        assert sound.lines[1:] == ["update ns/a@5 -> ns/a@6", "update ns/a@6 -> ns/a@7"]
        assert broken.lines[1:] == ["update ns/a@6 -> ns/a@7"]

    def test_events_without_end_are_stopped(
        self, cache: AssumeCache[Thing], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Endless(Told):
            def on_update(self, _old: Thing, new: Thing, /) -> None:
                cache.update(replace(new, resource_version=str(int(new.resource_version) + 1)))

        monkeypatch.setattr(assume, "EVENTS_MAX", 50)
        cache.add_event_handler(Endless())
        with pytest.raises(AssumeError, match="without end"):
            cache.update(a(6))


KEYS = st.sampled_from(["a", "b"])
VERSIONS = st.integers(1, 6)


class BothCaches(RuleBasedStateMachine):
    """Any sequence of calls: handlers' chains end in what ``get`` gives, and lists agree
    with it.
    """

    @initialize()
    def start(self) -> None:
        self.cache: AssumeCache[Thing] = AssumeCache({"note": lambda thing: thing.note})
        self.passive = PassiveAssumeCache(self.cache)
        self.seen: dict[str, dict[str, Thing]] = {"cache": {}, "passive": {}}
        self.serial = 0
        self.cache.add_event_handler(Chain(self.seen["cache"]))
        self.passive.add_event_handler(Chain(self.seen["passive"]))

    def thing(self, key: str, version: int) -> Thing:
        self.serial += 1
        return Thing(key, str(version), note=str(self.serial))

    @rule(key=KEYS, version=VERSIONS)
    def watch(self, key: str, version: int) -> None:
        self.cache.update(self.thing(key, version))

    @rule(key=KEYS, version=VERSIONS)
    def delete(self, key: str, version: int) -> None:
        self.cache.delete(self.thing(key, version))
        assert key not in self.cache

    @rule(key=KEYS, version=VERSIONS)
    def write(self, key: str, version: int) -> None:
        before = int(self.cache.get(key).resource_version) if key in self.cache else None
        thing = self.thing(key, version)
        try:
            self.cache.assume(thing)
        except AssumeError:
            assert before is None or version < before
        else:
            assert before is not None
            assert before <= version
            assert self.cache.get(key) is thing

    @rule(key=KEYS, version=VERSIONS)
    def believe(self, key: str, version: int) -> None:
        before = self.cache.get(key).resource_version if key in self.cache else None
        thing = self.thing(key, version)
        try:
            self.passive.assume(thing)
        except AssumeError:
            assert before != thing.resource_version
        else:
            assert before == thing.resource_version
            assert self.passive.get(key) is thing

    @rule(key=KEYS)
    def restore(self, key: str) -> None:
        self.cache.restore(key)

    @rule(key=KEYS, version=VERSIONS)
    def give_up(self, key: str, version: int) -> None:
        self.passive.restore(Thing(key, str(version)))

    @invariant()
    def handlers_and_lists_agree_with_get(self) -> None:
        stored = {thing.key: thing for thing in self.cache.list()}
        assert self.seen["cache"] == stored == {key: self.cache.get(key) for key in stored}
        effective = {thing.key: thing for thing in self.passive.list()}
        assert self.seen["passive"] == effective == {key: self.passive.get(key) for key in stored}
        for key, thing in stored.items():
            assert thing in self.cache.list("note", thing.note)
            assert int(self.cache.get_api(key).resource_version) <= int(thing.resource_version)
            assert effective[key].resource_version == thing.resource_version


@dataclass
class Chain:
    """A handler that holds what it was told last, and insists that ``old`` is that."""

    seen: dict[str, Thing]

    def on_add(self, obj: Thing, _initial_list: bool, /) -> None:
        assert obj.key not in self.seen
        self.seen[obj.key] = obj

    def on_update(self, old: Thing, new: Thing, /) -> None:
        assert self.seen[new.key] is old
        self.seen[new.key] = new

    def on_delete(self, obj: Thing, /) -> None:
        assert self.seen.pop(obj.key) is obj


BothCaches.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestBothCaches = BothCaches.TestCase
