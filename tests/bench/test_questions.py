"""The bench of questions measures what it says."""

import asyncio
from typing import Any

import orjson

from extender.service.http.questions import Questions
from extender.service.placing.decision_history import DecisionHistory
from tests.bench.options import Options
from tests.bench.questions import QUESTIONS, bench, crowded_caches


def test_every_question_is_answered_and_one_vpod_waits():
    async def answers() -> dict[str, Any]:
        questions = Questions(
            crowded_caches(20, "default"),
            history=DecisionHistory("test", lambda: 0.0),
            refusal=lambda: "",
            who=lambda _pool: {"leader": "test"},
        )
        return {name: orjson.loads(await ask(questions)) for name, ask in QUESTIONS.items()}

    found = asyncio.run(answers())
    assert found["explain, placed"]["left"] == 0
    assert found["explain, waits"]["left"] > 0
    assert found["explain, waits"]["fixes"]
    assert found["explain, pod"]["carries"]
    assert found["plan, drain a node"]["summary"]["podsAfter"] > 20
    assert found["plan, more slots"]["summary"]["unplacedBefore"] > 0


def test_a_line_for_each_question(monkeypatch):
    monkeypatch.setattr("tests.bench.questions.PODS_SHORT", (20,))
    monkeypatch.setattr("tests.bench.questions.TIMES", 1)
    monkeypatch.setattr("tests.bench.questions.IDLE_S", 0.02)
    results = list(bench(Options(short=True)))
    assert [result.case["question"] for result in results] == [*QUESTIONS, *QUESTIONS]
