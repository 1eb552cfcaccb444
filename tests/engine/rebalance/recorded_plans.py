"""``python -m tests.engine.rebalance.recorded_plans``: writes anew the plans that pools without
``capacities`` get. ``test_make_room_dimensions`` compares with them.
"""

import json
from pathlib import Path
from typing import Final

from tests.engine.rebalance.crowded import PROFILES, a_plan, crowded

FILE: Final = Path(__file__).with_name("recorded_plans.json")
SEEDS: Final = range(96)


def plan_of(seed: int) -> list[str]:
    """The moves for one seed, one a text. Half of the pools are less full, and empty their highest
    pod.
    """
    pods, empties = 3 + seed % 11, bool(seed // 4 % 2)
    profile = PROFILES[seed % len(PROFILES)]
    instance = crowded(seed, pods, profile=profile, misses=1 if empties else None)
    emptying = 1 << pods - 1 if empties else 0
    return [
        f"{move.vpod} {move.from_pod} {move.to_pod} {move.vreplicas} {move.reason}"
        for move in a_plan(instance.pool(), instance, emptying=emptying)
    ]


def recorded() -> dict[str, list[str]]:
    """Seed -> moves."""
    read: dict[str, list[str]] = json.loads(FILE.read_text())
    return read


if __name__ == "__main__":
    plans = {str(seed): plan_of(seed) for seed in SEEDS}
    FILE.write_text(json.dumps(plans, indent=1) + "\n")
