"""Seeded sequences of operations: a few kinds, a few names of each, and everything that can be done
to them.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import orjson

from extender.lab.apiserver.patch import merge_patch
from tests.differential.api_objects import (
    BAD_METADATA,
    BAD_SCALES,
    JSON_PATCHES,
    METADATA,
    SCALE_JSON,
    SCALES,
    SHAPES,
)
from tests.differential.api_operations import Operation

NAMES: Final = ("a", "b", "c")
BAD_SHARE: Final = 0.2
"""Of writes: input that should be refused."""
GRACES_S: Final = (None, None, None, 0, 0, 1, 100, 200, -1)
UIDS: Final = ("", "", "", "", "$uid", "$uid", "$old-uid", "11111111-1111-4111-8111-111111111111")
VERSIONS: Final = ("", "", "", "$version", "$version", "$old-version", "999999999999", "text")
PUT_VERSIONS: Final = (
    "$version",
    "$version",
    "$version",
    "$version",
    "$old-version",
    "",
    "999999999999",
    "text",
)
SELECTORS: Final = (
    "",
    "",
    "",
    "tier",
    "!tier",
    "tier=one",
    "tier in (one,two)",
    "tier!=one",
    "tier notin (two)",
)
BAD_SELECTORS: Final = ("tier in one", "tier==", "not a selector!", "a=b=c")
KIND_WEIGHTS: Final = {
    "Pod": 5,
    "VPod": 4,
    "StatefulSet": 3,
    "AdapterPool": 2,
    "Lease": 2,
    "Event": 1.5,
    "Node": 2,
    "Namespace": 1,
    "ConfigMap": 1.5,
}


def merged(base: Any, change: Any) -> Any:
    """A merge patch applied to a copy."""
    return merge_patch(orjson.loads(orjson.dumps(base)), orjson.loads(orjson.dumps(change)))


class Generator:
    """Makes the operations of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.generated = 0
        count = self.random.choice((1, 2, 2, 3))
        weights = dict(KIND_WEIGHTS)
        self.kinds: list[str] = []
        for _ in range(count):
            (kind,) = self.random.choices(list(weights), list(weights.values()))
            self.kinds.append(kind)
            del weights[kind]
        self.names = NAMES[: self.random.choice((1, 2, 3))]

    def sequence(self, length: int) -> list[Operation]:
        """Begins with a create, as nothing else could succeed."""
        return [self.create(self.kind()), *(self.operation() for _ in range(length - 1))]

    def operation(self) -> Operation:
        """Any."""
        kind = self.kind()
        makers: dict[Callable[[str], Operation], float] = {
            self.create: 7,
            self.get: 1.5,
            self.list: 2,
            self.watch: 2,
            self.update: 5,
            self.merge: 5,
            self.json: 4,
            self.status: 4 if SHAPES[kind].statuses else 0.5,
            self.strategic: 1.5,
            self.delete: 5,
            self.scale: 4 if kind == "StatefulSet" else 0.1,
            self.bind: 7 if kind == "Pod" else 0,
            self.bookmark: 0.02,
        }
        (make,) = self.random.choices(list(makers), list(makers.values()))
        return make(kind)

    def kind(self) -> str:
        """One of the sequence's."""
        return self.random.choice(self.kinds)

    def name(self) -> str:
        """Mostly one of the sequence's."""
        return self.random.choice(self.names)

    def bad(self) -> bool:
        """Whether the next write should be refused."""
        return self.random.random() < BAD_SHARE

    def create(self, kind: str) -> Operation:
        """An object of the kind, with metadata of its own or a generated name now and then."""
        shapes, random = SHAPES[kind], self.random
        name = self.name()
        body = merged(shapes.base, {"metadata": {"name": name}})
        choice = random.choice(
            shapes.bad_creates if self.bad() and shapes.bad_creates else shapes.creates
        )
        body = merged(body, choice)
        if random.random() < 0.15:
            body = merged(body, {"metadata": random.choice(METADATA)})
        elif random.random() < 0.06:
            body = merged(body, {"metadata": random.choice(BAD_METADATA)})
        elif random.random() < 0.05 and kind not in {"Node", "Namespace"}:
            self.generated += 1
            body = merged(body, {"metadata": {"name": None, "generateName": f"g{self.generated}-"}})
        return Operation("create", kind, name, body)

    def get(self, kind: str) -> Operation:
        """The object or a subresource."""
        return Operation(
            "get", kind, self.name(), subresource=self.random.choice(("", "", "status", "scale"))
        )

    def list(self, kind: str) -> Operation:
        """Whole or by pages, selected or not; sometimes something is written between two pages."""
        random = self.random
        between = None
        if random.random() < 0.4:
            between = random.choice((self.create, self.merge, self.delete))(kind)
        labels, fields = self.selectors(kind)
        return Operation(
            "list",
            kind,
            labels=labels,
            fields=fields,
            limit=random.choice((0, 1, 2)),
            between=between,
        )

    def selectors(self, kind: str, *, bad: float = 0.1) -> tuple[str, str]:
        """Label and field selectors."""
        random, shapes = self.random, SHAPES[kind]
        labels = random.choice(BAD_SELECTORS if random.random() < bad else SELECTORS)
        fields = random.choice(
            shapes.bad_fields if random.random() < bad else ("", "", *shapes.fields)
        )
        return labels, fields

    def watch(self, kind: str) -> Operation:
        """From the start or the last list, up to a marker that the selectors see."""
        labels, fields = self.selectors(kind, bad=0)
        marker = merged(SHAPES[kind].base, {"metadata": {"labels": {"tier": "one"}}})
        if labels in {"!tier", "tier!=one"}:
            marker["metadata"]["labels"] = {}
        since = self.random.choice(("start", "start", "start", "list", "list", "list", "text"))
        return Operation("watch", kind, body=marker, labels=labels, fields=fields, since=since)

    def bookmark(self, kind: str) -> Operation:
        """A watch with nothing to tell."""
        return Operation("bookmark", kind)

    def change(self, kind: str) -> Any:
        """A merge patch of the object."""
        shapes, random = SHAPES[kind], self.random
        if self.bad():
            options = [*shapes.bad_changes, *({"metadata": item} for item in BAD_METADATA)]
            return random.choice(options)
        if random.random() < 0.5 and shapes.changes:
            return random.choice(shapes.changes)
        change = {"metadata": random.choice(METADATA)}
        return (
            merged(change, random.choice(shapes.changes))
            if random.random() < 0.2 and shapes.changes
            else change
        )

    def update(self, kind: str) -> Operation:
        """A PUT of what is stored with a change."""
        version = self.random.choice(PUT_VERSIONS)
        return Operation("update", kind, self.name(), self.change(kind), version=version)

    def merge(self, kind: str) -> Operation:
        """A merge patch, with preconditions now and then."""
        change, random = self.change(kind), self.random
        if random.random() < 0.2:
            change = merged(change, {"metadata": {"resourceVersion": random.choice(PUT_VERSIONS)}})
        if random.random() < 0.2:
            change = merged(change, {"metadata": {"uid": random.choice(UIDS)}})
        return Operation("patch", kind, self.name(), change, patch_type="merge")

    def json(self, kind: str) -> Operation:
        """A JSON patch, most with ``test``."""
        own = SHAPES[kind].json
        body = self.random.choice(own if own and self.random.random() < 0.4 else JSON_PATCHES)
        return Operation("patch", kind, self.name(), body, patch_type="json")

    def strategic(self, kind: str) -> Operation:
        """kubectl's patch, which custom kinds refuse."""
        random, statuses = self.random, SHAPES[kind].statuses
        if statuses and random.random() < 0.4:
            body = random.choice(statuses)
            return Operation(
                "patch", kind, self.name(), body, subresource="status", patch_type="strategic"
            )
        return Operation("patch", kind, self.name(), self.change(kind), patch_type="strategic")

    def status(self, kind: str) -> Operation:
        """The status subresource, by patch or PUT."""
        shapes, random = SHAPES[kind], self.random
        options = shapes.bad_statuses if self.bad() and shapes.bad_statuses else shapes.statuses
        body = random.choice(options or ({"status": {"nothing": 1}},))
        if random.random() < 0.3:
            version = random.choice(PUT_VERSIONS)
            return Operation(
                "update", kind, self.name(), body, subresource="status", version=version
            )
        if random.random() < 0.25:
            body = merged(body, {"metadata": {"resourceVersion": random.choice(PUT_VERSIONS)}})
        elif random.random() < 0.2:
            operations = [
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": random.choice(PUT_VERSIONS),
                },
                {"op": "add", "path": "/status", "value": body.get("status") or {}},
            ]
            return Operation(
                "patch", kind, self.name(), operations, subresource="status", patch_type="json"
            )
        return Operation("patch", kind, self.name(), body, subresource="status", patch_type="merge")

    def scale(self, kind: str) -> Operation:
        """The scale subresource."""
        random = self.random
        body = random.choice(BAD_SCALES if self.bad() else SCALES)
        if random.random() < 0.4:
            version = random.choice(PUT_VERSIONS)
            return Operation(
                "update", kind, self.name(), body, subresource="scale", version=version
            )
        if random.random() < 0.3:
            body = random.choice(SCALE_JSON)
            return Operation(
                "patch", kind, self.name(), body, subresource="scale", patch_type="json"
            )
        return Operation("patch", kind, self.name(), body, subresource="scale", patch_type="merge")

    def bind(self, kind: str) -> Operation:
        """pods/binding, with and without preconditions and annotations.

        Never to a node whose name is none: kube-apiserver takes it and from then on refuses every
        write of that pod.
        """
        random = self.random
        body: dict[str, Any] = {
            "node": random.choice(
                ("$namespace-a", "$namespace-b", "$namespace-a", "$namespace-b", "")
            )
        }
        if random.random() < 0.6:
            body["annotations"] = random.choice(
                (
                    {"vreplica.dev/placements": '{"t/v":2}'},
                    {"example.dev/a": "9"},
                    {"not a key!": "x"},
                    {},
                )
            )
        return Operation(
            "bind",
            kind,
            self.name(),
            body,
            uid=random.choice(UIDS),
            version=random.choice(VERSIONS),
        )

    def delete(self, kind: str) -> Operation:
        """With grace and preconditions, or plain."""
        random = self.random
        return Operation(
            "delete",
            kind,
            self.name(),
            grace_s=random.choice(GRACES_S),
            uid=random.choice(UIDS),
            version=random.choice(VERSIONS),
        )


def sequence(seed: int, length: int) -> list[Operation]:
    """The operations of a seed."""
    return Generator(seed).sequence(length)
