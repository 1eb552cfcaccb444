"""Memory by what is no body (heads, trailers, framing, requests ahead), by bodies, and by answers
that nobody reads.

Each form by itself, then all at once. Both programs stay below their containers' limits, and beside
it every filter and every review is answered 200, at p99 within 100 ms of what they take while
nobody attacks (short: 300).
"""

import logging
from collections.abc import Mapping
from typing import Final

from tests.attack.target import Target

log = logging.getLogger(__name__)

FORMS: Final[tuple[Mapping[str, Mapping[str, int]], ...]] = (
    {"extender": {"heads": 300}, "webhook": {"heads": 200}},
    {
        "extender": {"trailers": 60, "framing": 60},
        "webhook": {"review trailers": 60, "review framing": 60},
    },
    {"extender": {"pipelines": 20, "plans": 600}, "webhook": {"reviews": 200}},
    {"extender": {"states": 500, "metrics": 100}, "webhook": {"metrics": 100, "handshakes": 1000}},
    {"extender": {"structure": 1, "questions": 2}, "webhook": {"review structure": 4}},
)


def _all_at_once() -> Mapping[str, Mapping[str, int]]:
    programs = ("extender", "webhook")
    return {
        program: {name: count for form in FORMS for name, count in form[program].items()}
        for program in programs
    }


async def play(target: Target) -> list[str]:
    """What is wrong."""
    seconds = 20.0 if target.short else 30.0
    wrong = []
    forms = (_all_at_once(),) if target.short else (*FORMS, _all_at_once())
    for form in forms:
        async with target.flooded(form, seconds + 5.0):
            seen = await target.ask(seconds)
        for program, honest in seen.items():
            peak = target.programs[program].peak_memory_bytes() / 1024**2
            said = f"{program} beside {dict(form[program])}"
            p99_ms = honest.p99_s() * 1e3
            log.info(
                "%s: %d answers, p99 %.0f ms, %.1f s without a processor, peak %.0f MiB",
                said,
                len(honest.took_s),
                p99_ms,
                honest.starved_s,
                peak,
            )
            if honest.failed:
                wrong.append(
                    f"{said}: {len(honest.failed)} of {len(honest.took_s)} failed: "
                    f"{honest.failed[0]}"
                )
            if target.is_late(program, honest):
                wrong.append(f"{said}: p99 {p99_ms:.0f} ms")
        wrong += target.memory()
    return wrong
