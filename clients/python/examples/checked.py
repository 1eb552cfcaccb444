"""The worker in forty lines as a program for ``vreplica adapter-kit``: its work is a line in the
work log, with the epoch that a write to an outside system would carry.
"""

import asyncio
import json
import os
from pathlib import Path

from worker import Worker


async def work(key: str, index: int | None, epoch: int) -> None:
    await asyncio.sleep(0.05)
    if name := os.environ.get("VREPLICA_WORK_LOG"):
        with Path(name).open("a") as log:  # noqa: ASYNC230 (a line, and closed at once)
            log.write(json.dumps({"share": key, "index": index, "epoch": epoch}) + "\n")


if __name__ == "__main__":
    asyncio.run(Worker(work).run())
