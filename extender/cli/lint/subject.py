"""``Subject``: one object of a file, with access to its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.cli.lint.codes import CODES, Finding
from extender.config.document import Document
from extender.model.reading import Json, mapping, mappings, text, value_at


@dataclass(slots=True)
class Subject:
    """An object of ``document`` at ``prefix`` ("" or ``items[0]``), and the findings in it."""

    document: Document
    raw: Json
    prefix: str = ""
    findings: list[Finding] = field(default_factory=list)

    def found(self, code: str, path: str, message: str) -> None:
        """Add a finding at a field of the object."""
        where = f"{self.prefix}.{path}" if self.prefix and path else self.prefix or path
        place = self.document.place(where)
        self.findings.append(Finding(CODES[code], self.document.subject, where, message, place))

    def text(self, *path: str) -> str:
        """The string at ``path``, or ""."""
        return text(self.raw, *path)

    def mapping(self, *path: str) -> Json:
        """The mapping at ``path``, or an empty one."""
        return mapping(self.raw, *path)

    def value(self, *path: str) -> object:
        """The value at ``path``."""
        return value_at(self.raw, path)

    def mappings(self, *path: str) -> Sequence[Mapping[str, object]]:
        """The mappings in the list at ``path``."""
        return mappings(self.raw, *path)
