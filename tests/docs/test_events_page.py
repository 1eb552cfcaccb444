"""docs/events.md is made of the fixed set of reasons: its table is made here, and compared with
the page.

``python -m tests.docs.test_events_page`` writes it anew.
"""

from pathlib import Path

from extender.model.event_reasons import EVENTS, EventReason
from tests.docs.test_metrics_page import END

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
BEGIN = "<!-- made by tests/docs/test_events_page.py -->"


def table() -> str:
    rows = [
        "| reason | type | on | action | what it says | what to do |",
        "|---|---|---|---|---|---|",
    ]
    for reason in EventReason:
        kind = EVENTS[reason]
        on = ", ".join(kind.regarding)
        rows.append(
            f"| `{reason}` | {kind.type} | {on} | {kind.action} | {kind.meaning} | {kind.remedy} |"
        )
    return "\n".join(rows)


def made(page: str) -> str:
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def test_the_page_has_what_the_code_has():
    assert PAGE.read_text() == made(PAGE.read_text()), "python -m tests.docs.test_events_page"


def test_every_reason_of_the_set_is_explained():
    assert set(EVENTS) == set(EventReason)


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
