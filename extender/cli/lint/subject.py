"""``Subject``: one object of a file, with access to its fields."""

from dataclasses import dataclass, field

from extender.cli.lint.codes import CODES, Finding
from extender.config.document import Document
from extender.model.reading import Json, text


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

    @property
    def kind(self) -> str:
        """Its kind; "" if it has none."""
        return text(self.raw, "kind")
