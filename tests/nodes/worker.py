"""The program of an adapter container, which says what it serves. It runs with the library in one
folder.

It appends to a file that outlives the container: each line is JSON with the time, a vpod, how many
of its vreplicas are served from then on, and in a pool with indexes which of them. A share is
served from the end of ``on_serve`` until ``on_drain`` or ``on_stop`` begins.
"""

import asyncio
import json
import os
import time
from pathlib import Path

from vreplica_adapter import Adapter, Share

START_S = 2.0
"""As to open connections, or to start more of what works."""
FINISH_S = 0.2
SERVES_ON_S = float(os.environ.get("SERVES_ON_S", "0"))
"""Before a share is drained: as long as routers send work that do not know."""
SAID = Path("/said") / os.environ.get("POD", "")


def say(share: Share, vreplicas: int) -> None:
    """``vreplicas`` of the share are served from now on."""
    line = {"at": time.time(), "vpod": share.key, "vreplicas": vreplicas}
    if vreplicas and share.indexes:
        line["indexes"] = share.indexes
    with SAID.open("a") as file:
        file.write(json.dumps(line) + "\n")


async def serve(share: Share) -> None:
    """Begin, or go on with another number."""
    await asyncio.sleep(START_S)
    say(share, share.vreplicas)


async def drain(share: Share) -> None:
    """Take nothing new, and finish what is under way."""
    await asyncio.sleep(SERVES_ON_S)
    say(share, 0)
    await asyncio.sleep(FINISH_S)


async def stop(share: Share) -> None:
    """End."""
    say(share, 0)


async def main() -> None:
    """Serve until SIGTERM."""
    async with Adapter(on_serve=serve, on_drain=drain, on_stop=stop) as adapter:
        await adapter.stopped()


if __name__ == "__main__":
    asyncio.run(main())
