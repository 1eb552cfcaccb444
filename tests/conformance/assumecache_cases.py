"""assumecache.json: the scripts of Kubernetes' assume cache tests, step by step on our two caches,
and those of its volume binder (``volume_binder_cases``).

Suite ``util/assumecache`` runs on ``AssumeCache``; ``volumebinding/passive_assume_cache`` and
``pv_assume_cache`` on ``PassiveAssumeCache`` over an ``InformerStore`` like client-go's (it takes
whatever it is given). Objects are told apart by ``ref``. A blocking handler does not return before
its ``release_handler`` step: it runs the next steps itself until then, which is what a blocked
handler means in one thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from extender.engine.cache.assume import AssumeCache, EventHandler, Notifier
from extender.engine.cache.passive_assume import PassiveAssumeCache
from extender.model.errors import AssumeError, NotFound, WrongType
from extender.model.objects import object_key
from extender.model.resource_versions import parse_version
from tests.conformance import volume_binder_cases
from tests.conformance.result import Case, Check, Difference

Step = dict[str, Any]

_VOLUME_BINDER = volume_binder_cases.VolumeBinderCases()


@dataclass(frozen=True)
class Item:
    """An object of a script."""

    ref: str
    namespace: str
    name: str
    resource_version: str
    uid: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    storage_class: str = ""

    @property
    def key(self) -> str:
        return object_key(self.namespace, self.name)

    @classmethod
    def of(cls, raw: Step) -> "Item":
        return cls(
            ref=raw["ref"],
            namespace=raw.get("namespace", ""),
            name=raw["name"],
            resource_version=raw["resourceVersion"],
            uid=raw.get("uid", ""),
            annotations=tuple(sorted(raw.get("annotations", {}).items())),
            storage_class=raw.get("storageClassName", ""),
        )


class InformerStore:
    """An informer's store: no versions are compared, the last word counts."""

    def __init__(self, index: Callable[[Item], str]) -> None:
        self._items: dict[str, Item] = {}
        self._index = index
        self._notifier: Notifier[Item] = Notifier()

    def add(self, item: Item) -> None:
        old = self._items.get(item.key)
        self._items[item.key] = item
        self._notifier.changed(old, item)

    update = add

    def put_unseen(self, item: Item) -> None:
        """Into the store without an event: as client-go's tests do with ``Indexer.Add``."""
        self._items[item.key] = item

    def delete(self, item: Item) -> None:
        if (old := self._items.pop(item.key, None)) is not None:
            self._notifier.changed(old, None)

    def get(self, key: str) -> Item:
        if key not in self._items:
            raise NotFound(key)
        return self._items[key]

    def list(self, index: str = "", value: str = "") -> list[Item]:
        return [item for item in self._items.values() if not index or self._index(item) == value]

    def add_event_handler(self, handler: EventHandler[Item]) -> None:
        self._notifier.add_handler(handler, [*self._items.values()])


def check(case: Case) -> str | Difference | None:
    """One case of assumecache.json."""
    suite = case["suite"]
    if suite == volume_binder_cases.SUITE:
        return _VOLUME_BINDER.check(case)
    if suite not in {
        "util/assumecache",
        "volumebinding/passive_assume_cache",
        "volumebinding/pv_assume_cache",
    }:
        return f"unknown suite {suite!r}"
    script = _ActiveScript(case) if suite == "util/assumecache" else _PassiveScript(case)
    mismatch = script.run()
    if mismatch is None:
        return None
    rules = RULES if suite == "util/assumecache" else ()
    return next(
        (rule for shows_in, holds, rule in rules if mismatch.op in shows_in and holds(case)),
        str(mismatch),
    )


# -- running a script ------------------------------------------------------------------------------


class _Mismatch(Exception):
    """What a step expected did not happen. ``op``: of the step, "" while it is being read."""

    op = ""


@dataclass
class _Recorder:
    """An event handler that keeps what it was told; ``wait`` blocks it."""

    wait: Callable[[], None] = lambda: None
    events: list[dict[str, object]] = field(default_factory=list)

    def on_add(self, obj: Item, initial_list: bool, /) -> None:
        self.wait()
        self.events.append({"what": "add", "obj": obj.ref, "initial_list": initial_list})

    def on_update(self, old: Item, new: Item, /) -> None:
        self.wait()
        self.events.append({"what": "update", "old": old.ref, "obj": new.ref})

    def on_delete(self, obj: Item, /) -> None:
        self.wait()
        self.events.append({"what": "delete", "obj": obj.ref})


def _index_of(name: str | None) -> Callable[[Item], str] | None:
    if name is None:
        return None
    if name == "namespace":
        return lambda item: item.namespace
    if name == "storageclass":
        return lambda item: item.storage_class
    kind, _, argument = name.partition(":")
    if kind == "annotation":
        return lambda item: dict(item.annotations).get(argument, "")
    raise _Mismatch(f"unknown index {name!r}")


class _Script:
    """The steps of a case, and what they share over both suites."""

    def __init__(self, case: Case) -> None:
        self.steps: Iterator[Step] = iter(case["steps"])
        self.handlers: dict[str, _Recorder] = {}
        self.tasks: set[str] = set()
        self.blocked: set[str] = set()
        self.number = -1
        self.ops: dict[str, Callable[[Step], None]] = {}

    def run(self) -> _Mismatch | None:
        try:
            for step in self.steps:
                self.do(step)
        except _Mismatch as mismatch:
            return mismatch
        return None

    def do(self, step: Step) -> None:
        self.number += 1
        if step["op"] not in self.ops:
            raise _Mismatch(f"step {self.number}: unknown op {step['op']!r}")
        self.ops[step["op"]](step)

    def mismatch(self, op: str, text: str) -> _Mismatch:
        mismatch = _Mismatch(f"step {self.number}, {op}: {text}")
        mismatch.op = op
        return mismatch

    def expect(self, op: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise self.mismatch(op, f"expected {wanted}, found {found}")

    def expect_item(self, step: Step, get: Callable[[str], Item]) -> None:
        try:
            found = {"ref": get(step["key"]).ref}
        except NotFound:
            found = {"error": "not_found"}
        self.expect(step["op"], found, step["expect"])

    def expect_error(self, step: Step, assume: Callable[[Item], None]) -> None:
        found = None
        try:
            assume(_object_of(step))
        except AssumeError as error:
            found = {NotFound: "not_found", WrongType: "object_name"}.get(type(error), "any")
        wanted = step["expect"]["error"]
        if (found is None) != (wanted is None) or wanted not in {None, "any", found}:
            raise self.mismatch("assume", f"expected error {wanted}, found {found}")

    def expect_refs(self, found: list[Item], wanted: Step) -> None:
        refs, expected = [item.ref for item in found], wanted["refs"]
        if not wanted["ordered"]:
            refs, expected = sorted(refs), sorted(expected)
        self.expect("list", refs, expected)


def _sortable(event: dict[str, object]) -> list[tuple[str, str]]:
    return sorted((key, str(value)) for key, value in event.items())


def _object_of(step: Step) -> Any:
    """The step's object, or the raw value that is none."""
    return step["object_raw"] if "object_raw" in step else Item.of(step["object"])


class _ActiveScript(_Script):
    """util/assumecache."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.index = _index_of(case.get("index"))
        self.cache: AssumeCache[Item] = AssumeCache({"index": self.index} if self.index else {})
        self.ops = {
            "add": lambda step: self.cache.add(_object_of(step)),
            "update": lambda step: self.cache.update(_object_of(step)),
            "delete": lambda step: self.cache.delete(_object_of(step)),
            "restore": lambda step: self.cache.restore(step["key"]),
            "assume": lambda step: self.expect_error(step, self.cache.assume),
            "get": lambda step: self.expect_item(step, self.cache.get),
            "get_api": lambda step: self.expect_item(step, self.cache.get_api),
            "list": self.list,
            "events": self.events,
            "add_handler": lambda step: self.add_handler(step["handler"], _Recorder()),
            "add_blocking_handler": self.add_blocking_handler,
            "release_handler": lambda step: self.blocked.discard(step["handler"]),
            "start_async": self.start_async,
            "expect_task_done": lambda step: self.expect(
                "expect_task_done", step["task"] in self.tasks, True
            ),
        }

    def list(self, step: Step) -> None:
        if "index_object" in step:
            if self.index is None:
                raise _Mismatch("list by an object needs an index")
            found = self.cache.list("index", self.index(Item.of(step["index_object"])))
        else:
            found = self.cache.list()
        self.expect_refs(found, step["expect"])

    def events(self, step: Step) -> None:
        recorder = self.handlers[step["handler"]]
        found, wanted = recorder.events[:], step["expect"]
        recorder.events.clear()
        if not step["ordered"]:
            found, wanted = sorted(found, key=_sortable), sorted(wanted, key=_sortable)
        self.expect("events", found, wanted)

    def add_handler(self, name: str, recorder: _Recorder) -> None:
        self.handlers[name] = recorder
        self.cache.add_event_handler(recorder)

    def add_blocking_handler(self, step: Step) -> None:
        name = step["handler"]
        self.blocked.add(name)

        def wait() -> None:
            while name in self.blocked:
                following = next(self.steps, None)
                if following is None:
                    raise _Mismatch(f"handler {name} is never released")
                self.do(following)

        self.add_handler(name, _Recorder(wait))

    def start_async(self, step: Step) -> None:
        self.number -= 1
        self.do(step["do"])
        self.tasks.add(step["task"])


class _PassiveScript(_Script):
    """volumebinding/passive_assume_cache and pv_assume_cache."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        index = _index_of(case.get("index"))
        self.store = InformerStore(index or (lambda _: ""))
        self.caches = {"": PassiveAssumeCache(self.store)}
        self.ops = {
            "new_cache": self.new_cache,
            "store_add": lambda step: self.store.put_unseen(_object_of(step)),
            "add": lambda step: self.store.add(_object_of(step)),
            "update": lambda step: self.store.update(_object_of(step)),
            "delete": lambda step: self.store.delete(_object_of(step)),
            "restore": lambda step: self.cache(step).restore(_object_of(step)),
            "assume": lambda step: self.expect_error(step, self.cache(step).assume),
            "get": lambda step: self.expect_item(step, self.cache(step).get),
            "get_api": lambda step: self.expect_item(step, self.cache(step).get_api),
            "list": lambda step: self.expect_refs(
                self.cache(step).list("index", step["index_value"])
                if "index_value" in step
                else self.cache(step).list(),
                step["expect"],
            ),
        }

    def cache(self, step: Step) -> PassiveAssumeCache[Item]:
        return self.caches[step.get("cache", "")]

    def new_cache(self, step: Step) -> None:
        self.caches[step["cache"]] = PassiveAssumeCache(self.store)


# -- where we differ on purpose: conditions on the script's own steps ------------------------------


@dataclass
class _Known:
    """What a script's steps make known of one key, by upstream's rules."""

    api: int | None
    latest: int | None


def _inputs(case: Case) -> Iterator[Step]:
    for step in case["steps"]:
        yield step["do"] if step["op"] == "start_async" else step


def _walk(case: Case) -> Iterator[tuple[Step, Item | None, dict[str, _Known]]]:
    """Each step with its object, and what was known before it (versions by key)."""
    known: dict[str, _Known] = {}
    for step in _inputs(case):
        item = Item.of(step["object"]) if "object" in step else None
        yield step, item, known
        if item is not None:
            _learn(step["op"], item, known)


def _learn(op: str, item: Item, known: dict[str, _Known]) -> None:
    version = parse_version(item.resource_version)
    there = known.get(item.key)
    if op == "delete":
        known.pop(item.key, None)
    elif op in {"add", "update"} and there is None:
        known[item.key] = _Known(version, version)
    elif there is not None and version is not None and there.latest is not None:
        if op in {"add", "update"} and version > there.latest:
            known[item.key] = _Known(version, version)
        elif op == "assume" and version >= there.latest:
            there.latest = version


def _deletes_unknown(case: Case) -> bool:
    return any(
        step["op"] == "delete" and item is not None and item.key not in known
        for step, item, known in _walk(case)
    )


def _adds_handler_to_filled_index(case: Case) -> bool:
    return case.get("index") is not None and any(
        step["op"] == "add_handler" and known for step, _, known in _walk(case)
    )


def _watch_follows_assumption(case: Case) -> bool:
    for step, item, known in _walk(case):
        if item is None or step["op"] not in {"add", "update"} or item.key not in known:
            continue
        there, version = known[item.key], parse_version(item.resource_version)
        if None in {there.api, there.latest, version}:
            continue
        if (there.api or 0) < (version or 0) <= (there.latest or 0):
            return True
    return False


def _deletes_late(case: Case) -> bool:
    uids: dict[str, tuple[str, int]] = {}
    for step, item, _ in _walk(case):
        if item is None or not item.uid:
            continue
        version = parse_version(item.resource_version) or 0
        uid, stored = uids.get(item.key, (item.uid, version))
        if step["op"] == "delete" and uid != item.uid and version < stored:
            return True
        if step["op"] in {"add", "update", "assume"} and version >= stored:
            uids[item.key] = (item.uid, version)
    return False


# The ops in which the difference shows, the condition on the input, the rule.
RULES: tuple[tuple[set[str], Callable[[Case], bool], Difference], ...] = (
    (
        {"events"},
        _deletes_unknown,
        Difference(
            "delete of an unknown key tells nobody",
            "upstream sends add(nil), which no handler can use",
        ),
    ),
    (
        {"events"},
        _adds_handler_to_filled_index,
        Difference(
            "an indexed cache has an initial list too",
            "upstream lists with a nil index object, so a late handler misses what is there",
        ),
    ),
    (
        {"get", "get_api", "events"},
        _watch_follows_assumption,
        Difference(
            "the watch is recorded behind an assumption",
            "upstream drops such events also for the API pointer, so that restore goes back too "
            "far",
        ),
    ),
    (
        {"get", "get_api", "list", "events"},
        _deletes_late,
        Difference(
            "the late delete of a previous incarnation is ignored",
            "it would remove the object that came after it",
        ),
    ),
)

FILES: dict[str, Check] = {"assumecache.json": check}
