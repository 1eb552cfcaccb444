"""Reads the JSON of ``vreplica run --once -o json`` from standard input and fails unless it says
what it must.
"""

import json
import sys
from typing import Any, Final

PAUSE_MAX_S: Final = 2.0
"""On a busy machine. A pod that is deleted takes longer."""
LOST: Final = "node node-4 is not Ready"
"""Why nobody serves some: the story lets that node fail, and what it keeps stays there."""


def problems(result: dict[str, Any]) -> list[str]:
    """What is wrong with a demonstration's figures; nothing for a good one."""
    found = []
    if result["vreplicasPlaced"] != result["vreplicasWanted"] or not result["vreplicasWanted"]:
        found.append("not all vreplicas are placed")
    found += [
        f"{name} is {result[name]}, not 0"
        for name in ("overcommittedPods", "bindErrors")
        if result[name]
    ]
    handed_over = result.get("vreplicasHandedOver", 0)
    if not handed_over or not result.get("piecesOfWork"):
        found.append("no adapter has worked, or nothing was handed over")
    if result["movedVReplicas"] != handed_over:
        found.append(f"{result['movedVReplicas']} vreplicas moved, {handed_over} were handed over")
    if result.get("longestPauseSeconds", 0) > PAUSE_MAX_S:
        found.append(f"nobody served some vreplica of a vpod for {result['longestPauseSeconds']} s")
    unserved = result["vreplicasUnserved"]
    if not unserved.get(LOST):
        found.append("nobody says that what the failed node keeps is unserved")
    found += [
        f"unserved although its node has not failed: {count} ({why})"
        for why, count in unserved.items()
        if why != LOST
    ]
    if result["secondsToSettle"] > 15:
        found.append(f"settled only after {result['secondsToSettle']} s")
    if (result["nodes"], result["vpods"]) != (6, 40) or result["binds"] < result["pods"]:
        found.append("nodes, vpods or binds are not those of the story")
    return found


if __name__ == "__main__":
    line = sys.stdin.read().strip().splitlines()[-1]
    wrong = problems(json.loads(line))
    sys.stderr.write(("\n".join(wrong) or "the demonstration is right") + "\n")
    sys.exit(1 if wrong else 0)
