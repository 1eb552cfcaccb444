"""Where both HTTP servers listen: one address, or everywhere, in both families, as Kubernetes' own
--bind-address has it.
"""

import errno
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from extender.kube.serving.listener import Listener
from extender.kube.serving.sockets import host_port

HAS_IPV6 = socket.has_dualstack_ipv6()
needs_ipv6 = pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def started(host: str, port: int = 0) -> tuple[Listener, int]:
    listener, app = Listener(), web.Application()
    app.router.add_get("/", _ok)
    return listener, await listener.start(app, host, port, tls=None)


async def answers(address: str, port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{host_port(address, port)}/") as reply,
        ):
            return reply.status == 200
    except aiohttp.ClientConnectorError:
        return False


@needs_ipv6
@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_everywhere_is_both_families_on_one_port(host: str):
    listener, port = await started(host)
    assert [await answers(address, port) for address in ("127.0.0.1", "::1")] == [True, True]
    await listener.stop()


@needs_ipv6
@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
async def test_one_address_is_that_address_alone(host: str, other: str):
    listener, port = await started(host)
    assert [await answers(address, port) for address in (host, other)] == [True, False]
    await listener.stop()


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_without_ipv6_everywhere_is_ipv4(monkeypatch: pytest.MonkeyPatch, error: int):
    create = socket.create_server

    def without(*arguments: Any, **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(error, "no IPv6")
        return create(*arguments, **options)

    monkeypatch.setattr(socket, "create_server", without)
    listener, port = await started("::")
    assert await answers("127.0.0.1", port)
    await listener.stop()


async def test_a_port_that_is_taken_is_an_error_everywhere_too():
    taken, port = await started("127.0.0.1")
    with pytest.raises(OSError, match="in use"):
        await started("0.0.0.0", port)
    await taken.stop()


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1:1"),
        ("::1", "[::1]:1"),
        ("", "[::]:1"),
        ("a.svc", "a.svc:1"),
        ("[::1]", "[::1]:1"),
    ],
)
def test_a_host_with_colons_is_in_brackets_before_its_port(host: str, shown: str):
    assert host_port(host, 1) == shown
