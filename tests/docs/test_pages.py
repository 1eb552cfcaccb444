"""What the pages show is what happens."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Command, Page, difference, pages, read_page
from tests.docs.scenes import PLAIN, SCENES, run_page

ALL = pages()


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_command_is_run_or_says_why_not(page: Page):
    unsaid = [block.line for block in page.blocks if not page.scene and not block.not_run]
    assert unsaid == [], "lines of blocks with neither a scene nor a reason"
    assert page.scene in {"", *SCENES}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "page", [page for page in ALL if page.scene == PLAIN], ids=lambda page: page.name
)
def test_the_page_does_what_it_shows(page: Page, tmp_path):
    assert run_page(page, tmp_path, []) == []


PAGE = """\
<!-- scene: plain -->

```console
$ echo one two; \\
    echo three
one two
...
$ false
$ echo $?
1
```

<!-- not run: takes an hour -->
```console
$ sleep 3600
```
"""


@pytest.fixture
def a_page(tmp_path, monkeypatch):
    def read(text: str) -> Page:
        path = tmp_path / "page.md"
        path.write_text(text)
        monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
        return read_page(path)

    return read


def test_commands_and_their_outputs_are_read(a_page):
    page = a_page(PAGE)
    assert page.scene == "plain"
    assert [block.not_run for block in page.blocks] == ["", "takes an hour"]
    first, second, third = page.blocks[0].commands
    assert first == Command("echo one two; \\\n    echo three", 4, ("one two", "..."))
    assert (second.text, third.text, third.output) == ("false", "echo $?", ("1",))


def test_a_page_that_holds_has_no_problems(a_page, tmp_path):
    assert run_page(a_page(PAGE), _empty(tmp_path), []) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param("$ false", "$ true", "real:\n0", id="another status"),
        pytest.param("one two\n", "one four\n", "real:\none two\nthree", id="another output"),
        pytest.param(
            "$ echo $?\n1\n", "$ true\n", "ended with 1", id="a failure that nobody asks for"
        ),
        pytest.param("$ false", "$ exit 0", "was not reached", id="an end before the end"),
    ],
)
def test_a_page_that_does_not_hold_is_told_with_its_line(a_page, tmp_path, old, new, problem):
    (found, *_) = run_page(a_page(PAGE.replace(old, new)), _empty(tmp_path), [])
    assert found.startswith("page.md:")
    assert problem in found


def test_what_runs_beside_is_ended_with_the_page(a_page, tmp_path):
    text = (
        "<!-- scene: plain -->\n<!-- another terminal -->\n```console\n$ sleep "
        "1000\n```\n```console\n$ true\n```\n"
    )
    assert run_page(a_page(text), _empty(tmp_path), []) == []


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("a  b 5s", "a b 2m10s", True),
        ("a b ...", "a b c d", True),
        ("a ...\n...\nz", "a b\nc\nd\nz", True),
        ("a b", "a b c", False),
        ("a b 5s", "a b soon", False),
        ("...", "", True),
        ("a", "a\nb", False),
    ],
)
def test_output_is_compared_by_words(shown, real, same):
    assert (difference(tuple(shown.splitlines()), real) == "") == same


def _empty(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


CODE = re.compile(r"`((?:extender|webhook|tests|manifests)/[\w./-]+?)(?:::(\w+))?`")
REFERENCES = [
    (page.name, *match)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for match in sorted(set(CODE.findall(page.read_text())))
]


@pytest.mark.parametrize(("page", "path", "name"), REFERENCES)
def test_what_a_page_names_is_there(page: str, path: str, name: str):
    assert (ROOT / path).exists(), path
    if name:
        assert re.search(
            rf"^(class|def|async def) {name}\b", (ROOT / path).read_text(), re.MULTILINE
        ), name


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)")


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page, and those that stand in it as HTML."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    } | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize(
    ("page", "target", "anchor"),
    [
        (path, target, anchor)
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
        for target, anchor in sorted(set(LINK.findall(path.read_text())))
    ],
    ids=str,
)
def test_a_link_leads_somewhere(page: Path, target: str, anchor: str):
    file = page.parent / target if target else page
    assert file.exists()
    if anchor and file.suffix == ".md":
        assert anchor in anchors_of(file)


def _tree() -> list[str]:
    """The folders of design.md's tree, in its order."""
    text = (ROOT / "docs" / "design.md").read_text()
    return re.findall(r"^((?:extender|webhook)/[\w/]*) ", text, re.MULTILINE)


def test_the_tree_lists_each_folder_of_the_packages_once_and_none_that_is_gone():
    packages = [
        path.parent for top in ("extender", "webhook") for path in (ROOT / top).rglob("__init__.py")
    ]
    folders = {f"{path.relative_to(ROOT)}/" for path in packages} | {"extender/ui/"}
    assert sorted(_tree()) == sorted(folders)
