"""``add_routes``: paths and their handlers, so that every request, also one to nowhere, meets our answer to ``Expect``.

aiohttp answers an ``Expect`` header before any handler or middleware runs, and puts an unknown value into its refusal: with
bytes that are no UTF-8 that fails, and the client gets a 500. Its way out is a handler for each route, but none for the two
answers that have no route: 404 and 405. So those are routes here, too.
"""

from collections.abc import Iterable

from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Handler

Route = tuple[str, str, Handler]
"""Method, path, handler."""


def add_routes(app: web.Application, routes: Iterable[Route]) -> None:
    """Serve ``routes`` and refuse everything else: 405 for another method of a path, 404 for another path.

    To be called once for an application: what is added later is never asked.
    """
    methods: dict[str, list[str]] = {}
    for method, path, handler in routes:
        # As aiohttp's add_get: a HEAD is a GET without its body.
        for served in (method, "HEAD") if method == "GET" else (method,):
            app.router.add_route(served, path, handler, expect_handler=_expected)
            methods.setdefault(path, []).append(served)
    for path, allowed in methods.items():
        app.router.add_route("*", path, _other_method(allowed), expect_handler=_expected)
    app.router.add_route("*", "/{path:.*}", _not_found, expect_handler=_expected)


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """``Expect: 100-continue`` is answered at once: whether a body is read is for its handler to say."""
    if request.version < HttpVersion11:
        return None  # HTTP/1.0 has no such header
    if request.headers["Expect"].lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # Not counted as this answer's: its own head is still to come.
        request.writer.output_size = 0
        return None
    return web.Response(status=417, text="of all expectations only 100-continue is met\n")


def _other_method(allowed: list[str]) -> Handler:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise web.HTTPMethodNotAllowed(request.method, allowed)

    return refuse


async def _not_found(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound
