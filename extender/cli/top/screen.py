"""Runs ``vreplica top``."""

import argparse
import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from rich.live import Live

from extender.cli.terminal.cluster_access import OpenCluster, access_of, open_watched
from extender.cli.terminal.console import Terminal
from extender.cli.terminal.output import print_result
from extender.cli.terminal.replica import ReplicaError, open_replica
from extender.cli.terminal.replica_access import replica_of
from extender.cli.top.sorting import Row
from extender.cli.top.view import View, rates_between
from extender.config.model import LeaderElectionConfig
from extender.kube.api import LEASES, ApiError
from extender.model.reading import text
from extender.model.timestamps import timestamp
from extender.service.http.overview import ChangeCounts, overview_of

ONCE_ROWS: Final = 60


Look = Callable[[], Awaitable[Row]]
"""Gets the present overview. Raises ReplicaError."""


async def top(options: argparse.Namespace) -> int:
    """Show the overview once, or live on a terminal. Raises ReplicaError, NotReadable."""
    async with _looks(options) as look:
        if options.once or options.output != "table" or not sys.stdout.isatty():
            overview = await look()
            view = View(
                overview,
                sort=options.sort,
                interactive=False,
                tenants_only=options.what == "tenants",
            )
            print_result(overview, options.output, lambda: Terminal().print(view.render(ONCE_ROWS)))
            return 0
        view = View({}, sort=options.sort, tenants_only=options.what == "tenants")
        await _Screen(look, options.interval, view).run()
    return 0


@asynccontextmanager
async def _looks(options: argparse.Namespace) -> AsyncIterator[Look]:
    if options.server:
        async with open_replica(replica_of(options)) as replica:
            yield partial(replica.get, "/v1/overview")
        return
    async with open_watched(access_of(options)) as (cluster, caches):
        counts = ChangeCounts(caches)

        async def look() -> Row:
            leader = await _leader(cluster)
            found = await overview_of(caches.state)
            head = {"at": timestamp(time.time()), "leader": leader, "counters": counts.to_json()}
            return {**head, **found}

        yield look


async def _leader(cluster: OpenCluster) -> str:
    """The holder of the Lease with the default name and namespace; "" if it cannot be read."""
    usual = LeaderElectionConfig()
    try:
        lease = await cluster.api.get(LEASES, usual.resource_namespace, usual.resource_name)
    except ApiError:
        return ""
    return text(lease, "spec", "holderIdentity")


class _Screen:
    """The live view. If a look fails, the error is shown above the last overview, and the next look
    follows.
    """

    def __init__(self, look: Look, interval_s: float, view: View) -> None:
        self._look = look
        self._interval_s = interval_s
        self._view = view
        self._ended = asyncio.Event()
        self._seen_at = 0.0
        self._console = Terminal()
        self._live: Live | None = None

    async def run(self) -> None:
        """Show the view until q or until cancelled. Raises ReplicaError if the first look fails."""
        clock = asyncio.get_running_loop().time
        self._view = replace(self._view, overview=await self._look())
        self._seen_at = clock()
        with (
            _keys(self._key),
            Live(console=self._console, auto_refresh=False, screen=True) as self._live,
        ):
            self._show()
            while not await self._waited():
                if not self._view.paused:
                    await self._look_again(clock())
                self._show()

    async def _waited(self) -> bool:
        """Wait for the interval; return whether the view has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._ended.wait()
        return self._ended.is_set()

    async def _look_again(self, now: float) -> None:
        before = self._view
        try:
            overview = await self._look()
        except ReplicaError as error:
            self._view = replace(before, rates=None, problem=str(error))
            return
        rates = rates_between(before.overview, overview, now - self._seen_at)
        self._seen_at = now
        self._view = replace(self._view, overview=overview, rates=rates, problem="")

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._view.render(self._console.height), refresh=True)

    def _key(self, key: str) -> None:
        match key:
            case "q":
                self._ended.set()
            case "p":
                self._view = replace(self._view, paused=not self._view.paused)
            case "s":
                self._view = self._view.sorted_next()
            case _:
                return
        self._show()


@contextmanager
def _keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call ``on_key`` for every key, at once, until the block ends. Does nothing without a
    terminal.
    """
    if not sys.stdin.isatty():
        yield
        return
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def typed() -> None:
        for key in os.read(terminal, 64).decode(errors="replace"):
            on_key(key)

    loop.add_reader(terminal, typed)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
