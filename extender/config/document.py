"""Parses YAML and JSON files, and keeps the place of every field for messages.

Beside the plain value, ``parse`` keeps the line and column of each key and list item. Their paths
have the form that messages use (``profiles[0].scores[1].name``). A key that occurs twice in a
mapping is an error that names both lines. YAML forbids duplicate keys, but its parser accepts them;
kube-scheduler's strict decoding refuses them too. The fields of a value that an alias repeats have
their places under the anchored original. Under the alias, they have the place of the alias.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import yaml

from extender.config.nearest import with_hint
from extender.model.errors import InvalidObject
from extender.model.reading import refuse_strange
from extender.model.yaml_errors import why_not_yaml

CONFIG_BYTES_MAX: Final = 1024 * 1024
DOCUMENTS_MAX: Final = 200
"""Per file."""
_MERGE: Final = "tag:yaml.org,2002:merge"
Stamps = tuple[tuple[int, int, int] | None, ...]
"""See ``stamps_of``."""


class Place(NamedTuple):
    """A position in a file. Line and column count from 1; 0 means unknown."""

    line: int
    column: int


NOWHERE: Final = Place(0, 0)


class InvalidField(InvalidObject):
    """An InvalidObject with its ``place`` in a file. ``hint`` says what to write instead; it may be
    empty.
    """

    def __init__(
        self, subject: str, field: str, problem: str, *, hint: str = "", place: Place = NOWHERE
    ) -> None:
        where = f", line {place.line}, column {place.column}" if place.line else ""
        super().__init__(subject, field, with_hint(f"{problem}{where}", hint))
        self.plain = problem
        self.hint = hint
        self.place = place


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its ``value``, and the ``places`` of its fields by path. The path "" is
    the document itself.
    """

    subject: str
    value: object = field(repr=False)
    places: Mapping[str, Place] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def place(self, path: str) -> Place:
        """Return the place of a field, or of the nearest field around it if it is absent."""
        while path and path not in self.places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.places.get(path, NOWHERE)

    def with_place(self, error: InvalidObject, path: str | None = None) -> InvalidField:
        """Return the same error with its place. ``path`` is the field's path in this document, if
        that is not ``error.field``.
        """
        hint = error.hint if isinstance(error, InvalidField) else ""
        problem = error.plain if isinstance(error, InvalidField) else error.problem
        where = error.field if path is None else path
        return InvalidField(error.subject, error.field, problem, hint=hint, place=self.place(where))


def stamps_of(files: Sequence[str]) -> Stamps:
    """Return for each file what changes when it is replaced; None if there is no file."""
    return tuple(_stamp(name) for name in files)


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        stat = Path(name).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def read_file(path: str) -> bytes:
    """Read a file. Raises InvalidObject if it cannot be opened or is too large."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidObject(path, "", f"cannot be read: {error.strerror}") from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise InvalidObject(path, "", f"is larger than {CONFIG_BYTES_MAX} bytes")
    return raw


def open_document(path: str) -> Document:
    """Parse the one document in a file. Raises InvalidObject, InvalidField."""
    return parse(read_file(path), path)


def parse(raw: bytes | str, subject: str) -> Document:
    """Parse a text of one document. An empty text has the value None. Raises InvalidObject,
    InvalidField.
    """
    found = parse_all(raw, subject)
    if len(found) > 1:
        kinds = [str(one.value.get("kind")) for one in found if isinstance(one.value, Mapping)]
        shown = f" (kind {', '.join(kinds)})"[:200] if kinds else ""
        raise InvalidObject(subject, "", f"expected a single document, found {len(found)}{shown}")
    return found[0] if found else Document(subject, None)


def parse_all(raw: bytes | str, subject: str) -> list[Document]:
    """Parse all documents of a YAML or JSON text. Raises InvalidObject, and InvalidField for a
    duplicate key.
    """
    try:
        return list(_documents(raw, subject))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if "'\\t'" in str(error) and (spaced := _without_tabs(raw)):
            return parse_all(spaced, subject)
        raise InvalidObject(subject, "", f"is not YAML: {why_not_yaml(error)}") from error


def _without_tabs(raw: bytes | str) -> bytes:
    """Return JSON with its tabs replaced by spaces, because YAML forbids tabs as indentation.
    Return b"" for anything else.
    """
    data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "replace")
    return data.replace(b"\t", b" ") if data.lstrip()[:1] == b"{" and b"\t" in data else b""


def _documents(raw: bytes | str, subject: str) -> Iterator[Document]:
    loader = yaml.SafeLoader(raw)
    count = 0
    try:
        while loader.check_node():
            count += 1
            if count > DOCUMENTS_MAX:
                raise InvalidObject(subject, "", f"has more than {DOCUMENTS_MAX} documents")
            node = loader.get_node()
            assert node is not None
            # Look for duplicate keys first: construct_document resolves merge keys in place,
            # and a merged key may repeat another.
            places = _places(node, subject)
            try:
                value = loader.construct_document(node)
            except (LookupError, AttributeError) as error:
                raise yaml.YAMLError(why_not_yaml(error)) from error
            refuse_strange(value, subject)
            yield Document(subject, value, MappingProxyType(places))
    finally:
        loader.dispose()


def _places(root: yaml.Node, subject: str) -> dict[str, Place]:
    """Return the place of every key and item. Raises InvalidField for a duplicate key.

    An aliased node is walked once, because aliases can stand for billions of values. The walk is in
    the document's order, in which the anchored original comes before its aliases.
    """
    places = {"": _place(root)}
    pending: list[tuple[str, yaml.Node]] = [("", root)]
    seen: set[int] = set()
    while pending:
        path, node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        below: list[tuple[str, yaml.Node]] = []
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                places[f"{path}[{index}]"] = _place(item)
                below.append((f"{path}[{index}]", item))
        elif isinstance(node, yaml.MappingNode):
            for name, key, value in _keys(node, path, subject):
                places[name] = _place(key)
                below.append((name, value))
        pending += reversed(below)
    return places


def _keys(
    node: yaml.MappingNode, path: str, subject: str
) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    first: dict[Hashable, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        name = f"{path}.{key.value}" if path else str(key.value)
        identity = (key.tag, key.value)
        if identity in first:
            problem = f"occurs twice, first on line {_place(first[identity]).line}"
            raise InvalidField(subject, name, problem, hint="keep one of them", place=_place(key))
        first[identity] = key
        yield name, key, value


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    return Place(mark.line + 1, mark.column + 1) if mark is not None else NOWHERE
