"""The program of a router container, which asks where vpods are served and would send requests
there. It runs with the library in one folder.

It appends to a file: each line is JSON with the time, a vpod, and the pod to which its request
goes; "" if it knows none. Once it knows all vpods, it begins.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from vreplica_adapter import PlacedPod, Resolver, Unresolved

LOOK_S = 0.05
REQUESTS = 10
"""Requests of each look, to vpods drawn at random."""
SEED = 8_2
FOLDER = Path("/var/run/vreplica")
FILE = Path("/said/router")


def chosen(dice: random.Random, pods: Sequence[PlacedPod]) -> str:
    """Name of one of the pods, at random by their vreplicas."""
    if not pods:
        return ""
    (one,) = dice.choices(pods, weights=[one.vreplicas for one in pods])
    return one.pod.partition("/")[2]


async def pods_of(resolver: Resolver, vpod: str) -> Sequence[PlacedPod]:
    """Where a vpod is served, as far as is known."""
    try:
        return (await resolver.resolve(vpod)).pods
    except Unresolved:
        return ()


async def main() -> None:
    """Send requests until the container is stopped."""
    dice = random.Random(SEED)
    vpods = os.environ["VPODS"].split(",")
    resolver = Resolver(
        os.environ["VREPLICA_URLS"].split(","),
        token_file=FOLDER / "token",
        ca_file=FOLDER / "ca.crt",
    )
    async with resolver:
        while not all([await pods_of(resolver, vpod) for vpod in vpods]):  # noqa: ASYNC110 (asks)
            await asyncio.sleep(1)
        with FILE.open("a") as file:  # noqa: ASYNC230 (nothing else is to be done)
            while True:
                for vpod in dice.choices(vpods, k=REQUESTS):
                    pod = chosen(dice, await pods_of(resolver, vpod))
                    file.write(json.dumps({"at": time.time(), "vpod": vpod, "pod": pod}) + "\n")
                file.flush()
                await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    asyncio.run(main())
