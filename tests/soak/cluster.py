"""``vreplica cluster`` with faults between our programs and its API: ``python -m
tests.soak.cluster``, started by the soak.

Theory of operation. Requests of our own ServiceAccounts are refused (409, 422, 429, 500, 503),
delayed, lost on their way or lose their answer, by the dice of ``extender.lab.faults``; everybody
else, such as the soak itself, is served as it is. A request or an answer that is lost is a
connection that is cut, which is what the client sees. Now and then the history is compacted, so
that a watch that was cut and comes back gets 410. SIGUSR1 switches the faults on, SIGUSR2 off.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop
from aiohttp import web

from extender.config.kube_scheduler import SchedulerConfig
from extender.config.kube_scheduler_file import load_configuration
from extender.kube.api import OutcomeUnknown
from extender.lab.apiserver import statuses
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.webhooks import HttpWebhookCaller
from extender.lab.demo.local import LocalCluster
from extender.lab.faults import CALM, FaultRates, Faults
from extender.lab.http.server import HttpApiServer
from extender.lab.http.verbs import json_response

OURS: Final = "Bearer system:serviceaccount:vreplica-system:"
RATES: Final = FaultRates(
    conflict=0.01,
    invalid=0.005,
    too_many_requests=0.005,
    internal_error=0.01,
    unavailable=0.01,
    connection_reset=0.01,
    reply_lost=0.02,
    slow=0.02,
    slow_max_s=2.0,
)
COMPACT_PERIOD_S: Final = 20.0
QUIET_S: Final = 0.05


class FaultyServer(HttpApiServer):
    """The HTTP server, through which our own programs are served badly while ``faults`` is
    not calm.
    """

    def __init__(self, cluster: Cluster, port: int, faults: Faults) -> None:
        super().__init__(cluster, "127.0.0.1", port, webhooks=HttpWebhookCaller())
        self.faults = faults

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        faults = self.faults
        if faults.rates is CALM or not request.headers.get("Authorization", "").startswith(OURS):
            return await super()._handle(request)
        await faults.delay()
        refusal = faults.refusal("service", write=request.method != "GET")
        if isinstance(refusal, OutcomeUnknown):
            return _cut(request)
        if refusal is not None:
            body = statuses.status_body(refusal)
            retry = (
                {}
                if refusal.retry_after_s is None
                else {"Retry-After": str(int(refusal.retry_after_s))}
            )
            response = json_response(body, body["code"])
            response.headers.update(retry)
            return response
        answer = await super()._handle(request)
        if isinstance(answer, web.Response):  # not a watch, which has been answered as it went
            await faults.delay()
            if faults.hits("reply_lost"):
                return _cut(request)
        return answer


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class FaultyCluster(LocalCluster):
    """``LocalCluster`` behind a ``FaultyServer``."""

    def __init__(self, *, seed: int, port: int) -> None:
        super().__init__(seed=seed, port=port)
        self.faults = Faults(random.Random(seed + 1))
        self.server = FaultyServer(self.cluster, port, self.faults)

    def switch(self, *, on: bool) -> None:
        """Faults on or off."""
        self.faults.rates = RATES if on else CALM

    async def compact(self) -> None:
        """Forgets the history now and then, while the faults are on."""
        while True:
            await asyncio.sleep(COMPACT_PERIOD_S)
            version = -1
            # In a quiet moment: who follows has been told all there is. It is meant for those that
            # were cut off.
            while version != self.cluster.version:
                version = self.cluster.version
                await asyncio.sleep(QUIET_S)
            if self.faults.rates is not CALM:
                self.cluster.compact()


async def run(options: argparse.Namespace, configs: Sequence[SchedulerConfig]) -> None:
    """The cluster, until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with FaultyCluster(seed=options.seed, port=options.port) as local:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, lambda: local.switch(on=True))
        loop.add_signal_handler(signal.SIGUSR2, lambda: local.switch(on=False))
        for config in configs:
            local.start_scheduler(config)
        local.write_kubeconfig(Path(options.kubeconfig_out))
        local.spawn(local.compact(), "compaction")
        while not stop.is_set():
            local.check()
            await asyncio.sleep(0.5)
    sys.stdout.write(f"faults: {dict(local.faults.counts)}\n")


def main(arguments: list[str]) -> None:
    """The options of ``vreplica cluster`` that the end-to-end suite gives, and ``--seed``."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cluster")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kubeconfig-out", required=True)
    parser.add_argument("--scheduler-config", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    configs = [load_configuration(Path(path).read_text()) for path in options.scheduler_config]
    uvloop.run(run(options, configs))


if __name__ == "__main__":
    main(sys.argv[1:])
