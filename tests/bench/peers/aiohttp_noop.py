"""An extender that decides nothing, in aiohttp with orjson on uvloop: what the protocol alone costs
in Python.

``python -m tests.bench.peers.aiohttp_noop --port P``. Every request is decoded, every answer
encoded; all nodes pass, all have score 0, the victims are those that were given, and bind is ok at
once.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import uvloop
from aiohttp import web

from extender.node.wire import BODY_BYTES_MAX

Json = dict[str, Any]


def filter_all(args: Json) -> Json:
    """ExtenderFilterResult in the form of the request."""
    return {"Nodes": args["Nodes"], "NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}


def prioritize_none(args: Json) -> list[Json]:
    """HostPriorityList."""
    names = args["NodeNames"]
    if names is None:
        names = [node["metadata"]["name"] for node in args["Nodes"]["items"]]
    return [{"Host": name, "Score": 0} for name in names]


def preempt_as_given(args: Json) -> Json:
    """ExtenderPreemptionResult."""
    victims = args["NodeNameToMetaVictims"]
    if victims is None:
        victims = {
            node: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in whole["Pods"]],
                "NumPDBViolations": whole["NumPDBViolations"],
            }
            for node, whole in args["NodeNameToVictims"].items()
        }
    return {"NodeNameToMetaVictims": victims}


def bind_nothing(_args: Json) -> Json:
    """ExtenderBindingResult."""
    return {"Error": ""}


def _handler(verb: Callable[[Json], object]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        answer = verb(orjson.loads(await request.read()))
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handle


async def serve(port: int) -> None:
    """Until cancelled."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    for path, verb in (
        ("filter", filter_all),
        ("prioritize", prioritize_none),
        ("preempt", preempt_as_given),
        ("bind", bind_nothing),
    ):
        app.router.add_post(f"/v1/{path}", _handler(verb))

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
