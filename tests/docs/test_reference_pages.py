"""The tables of docs/configuration.md and docs/doctor.md are made from the code, and compared with
the pages.

``python -m tests.docs.test_reference_pages`` writes them anew.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from extender.cli.doctor.checks import CHECKS
from extender.cli.lint.codes import CODES
from extender.cli.main import main
from extender.config.reading import READ_BY
from extender.config.settings import SECTIONS, SETTINGS, Entry, ValueKind
from extender.config.view import plain
from extender.kube.first_errors import USUAL
from extender.python_version import python_problem
from tests.docs.pages import with_article

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "configuration.md", DOCS / "doctor.md"]
BLOCK = re.compile(
    r"(<!-- made by tests/docs/test_reference_pages.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)


def rows(heads: str, lines: Iterable[tuple[str, ...]]) -> str:
    names = heads.split("|")
    table = [names, ["---"] * len(names), *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in table
    )


def settings() -> str:
    def values(entry: Entry) -> str:
        low, high = entry.setting.minimum, entry.setting.maximum
        if entry.kind in {ValueKind.WHOLE, ValueKind.NUMBER}:
            return f"{entry.kind.value}, {low:.12g} to {high:.12g}"
        if entry.kind is ValueKind.CHOICE:
            return ", ".join(f"`{one}`" if one else '`""`' for one in entry.choices)
        most = f", at most {entry.setting.items_max}" if entry.setting.items_max else ""
        return f"{entry.kind.value}{most}"

    lines = [
        (
            f"`{entry.path}`",
            f"`{json.dumps(plain(entry.default))}`",
            values(entry),
            str(entry.setting.reload),
            entry.setting.text,
        )
        for entry in SETTINGS
    ]
    return rows("setting|default|value|a change|meaning", lines)


def findings() -> str:
    lines = [(one.code, str(one.severity), one.happens, one.fix) for one in CODES.values()]
    return rows("code|severity|what comes of it|fix", lines)


def checks() -> str:
    return rows(
        "check|answers|reads", [(f"`{one.name}`", one.asks, ", ".join(one.needs)) for one in CHECKS]
    )


def mistakes() -> str:
    usual = [(one.mistake, one.fix) for one in USUAL]
    wrong = [
        (f"{with_article(kind)} as configuration file", f"This {kind} is {what}")
        for kind, what in READ_BY.items()
    ]
    old = ("a Python that is too old", python_problem((3, 10, 1), "PYTHON"))
    return rows("mistake|what is told", [*usual, *wrong, old])


TABLES = {"settings": settings, "findings": findings, "checks": checks, "mistakes": mistakes}


def rewritten(page: str) -> str:
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_has_the_tables_that_the_code_makes(page):
    assert page.read_text() == rewritten(page.read_text()), (
        "python -m tests.docs.test_reference_pages writes it anew"
    )


def test_every_table_is_on_a_page():
    shown = {found[2] for page in PAGES for found in BLOCK.finditer(page.read_text())}
    assert shown == set(TABLES)


def test_the_settings_of_each_section_are_on_the_page():
    page = PAGES[0].read_text()
    for path in SECTIONS:
        assert f"`{path}." in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_on_the_page_is_one_of_the_command(page, capsys):
    for command, options in re.findall(
        r"^\$ vreplica ((?:config )?[a-z]+)([^\n#]*)", page.read_text(), re.MULTILINE
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command.split(), "--help"])
        assert ended.value.code == 0
        known = capsys.readouterr().out
        for option in re.findall(r"(?<!\S)--?[a-z]+", options):
            assert option in known, command


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(rewritten(one.read_text()))
