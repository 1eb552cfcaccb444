"""Outcomes made comparable, and the differences between two of them.

What a server makes up itself is replaced by the order in which it appeared: uids become ``uid-1``,
times ``<time>`` (or ``<microtime>``), random suffixes ``*``. A resourceVersion becomes ``v3 above
2``: the third that was seen, newer than two of those seen before; so both sides must give new
versions in the same order and keep the old one where nothing changed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.differential.api_operations import Operation, Outcome

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"(?!2020-)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_GENERATED: Final = re.compile(r"\b(g\d+-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_STATED_VERSION: Final = re.compile(
    r"(ResourceVersion in (?:precondition: |object meta: |record \(|the precondition \()"
    r"|resource version: )(\d+)"
)
_PROBLEM: Final = re.compile(
    r"(\w[\w./\[\]-]*): "
    r"(Invalid value|Required value|Forbidden|Duplicate value|Unsupported value|Too long|Too many)"
)
_KNOWN: Final = (
    "cannot be handled",
    '"" is invalid: patch',
    "unable to parse requirement",
    "the server rejected our request due to an error in our request",
)
_ABSENT: Final = "<absent>"
"""Of a field: null is something else."""
_GRACE_STEP_S: Final = 100


@dataclass(frozen=True, slots=True)
class Leaf:
    """One place where two outcomes differ."""

    path: str
    embedded: Any
    real: Any

    def __str__(self) -> str:
        return f"{self.path}: embedded {_short(self.embedded)}, real {_short(self.real)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 700 else f"{text[:700]}..."


@dataclass(slots=True)
class Normaliser:
    """Of one side and one sequence; ``namespace`` is how both sides' names differ from run
    to run.
    """

    namespace: str
    start_s: float
    uids: dict[str, str] = field(default_factory=dict)
    versions: dict[int, str] = field(default_factory=dict)

    def outcome(self, outcome: Outcome, operation: Operation) -> dict[str, Any]:
        """Everything of an outcome that must be equal."""
        # The gist comes first: some refusals quote the whole object, with names that are then
        # counted as seen.
        refused = outcome.error.startswith(("422", "400"))
        message = self._text(gist(outcome.message) if refused else outcome.message)
        shown = self.value(outcome.shown)
        return {"error": outcome.error, "message": message, "shown": shown, "wrote": outcome.wrote}

    def value(self, value: Any, key: str = "") -> Any:
        """``value`` with what is made up replaced."""
        if isinstance(value, dict):
            return {
                self._text(name): self.value(item, name)
                for name, item in sorted(value.items())
                if name != "managedFields"
            }
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, str):
            return value
        if key == "resourceVersion" and value.isdigit():
            return self._version(int(value))
        if key == "deletionTimestamp" and _TIME.fullmatch(value):
            after_s = datetime.fromisoformat(value).astimezone(UTC).timestamp() - self.start_s
            return f"<time {round(after_s / _GRACE_STEP_S) * _GRACE_STEP_S} s after>"
        return self._text(value)

    def _version(self, version: int) -> str:
        if version not in self.versions:
            below = sum(known < version for known in self.versions)
            self.versions[version] = f"v{len(self.versions) + 1} above {below}"
        return self.versions[version]

    def _text(self, text: str) -> str:
        text = _UUID.sub(
            lambda found: self.uids.setdefault(found[0], f"uid-{len(self.uids) + 1}"), text
        )
        text = _TIME.sub(lambda found: "<microtime>" if found[1] else "<time>", text)
        text = _STATED_VERSION.sub(lambda found: f"{found[1]}N", text)
        return _GENERATED.sub(r"\1*", text.replace(self.namespace, "NAMESPACE"))


def gist(message: str) -> str:
    """Of a refusal of the content: which fields are wrong and how, without the words; whether it
    could not be read at all.
    """
    if message.startswith("found '"):  # another of the label selector parser's complaints
        return "unable to parse requirement"
    for known in _KNOWN:
        if known in message:
            return known
    found = sorted({f"{where}: {what}" for where, what in _PROBLEM.findall(message)})
    return "; ".join(found) if found else message


def leaves(embedded: Any, real: Any, path: str = "") -> Iterator[Leaf]:
    """Every difference, as deep as it can be told."""
    if isinstance(embedded, dict) and isinstance(real, dict):
        for name in sorted(embedded.keys() | real.keys(), key=str):
            where = f"{path}.{name}" if path else str(name)
            yield from leaves(embedded.get(name, _ABSENT), real.get(name, _ABSENT), where)
    elif isinstance(embedded, list) and isinstance(real, list) and len(embedded) == len(real):
        for at, (left, right) in enumerate(zip(embedded, real, strict=True)):
            yield from leaves(left, right, f"{path}[{at}]")
    elif embedded != real or type(embedded) is not type(real):
        yield Leaf(path, embedded, real)
