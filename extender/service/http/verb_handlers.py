"""``VerbHandlers``: from a verb's HTTP request to its reply, within the limits of one listener.

A replica has several listeners, each with its own address and clients (``Listener``). Each has its
own ``Gate``, which limits the requests in flight and the bytes of their bodies. So the clients of
one listener cannot use up the limits of another one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from extender.kube.serving.listener import Listener, body_of
from extender.model.errors import WireError
from extender.node.wire import encode_binding_result
from extender.service.binding.verbs import ERROR
from extender.service.http.health import Health
from extender.service.http.overload import BIND, OVERLOAD_RETRY_S, Gate, Overloaded, VerbLimits
from extender.service.http.schedule import ScheduleRefused
from extender.telemetry.metrics import Metrics
from extender.telemetry.tracing import TRACEPARENT, span

Verb = Callable[[bytes], Awaitable[tuple[bytes, str]]]
"""Takes a request's body. Returns the reply's body, and the status for the metrics. Raises
WireError.
"""


class VerbHandlers:
    """Makes the handlers of one listener's verbs. ``requests`` counts what they receive, by
    verb.
    """

    def __init__(
        self,
        listener: Listener,
        health: Health,
        metrics: Metrics,
        *,
        deadline_s: float,
        requests: dict[str, int],
        limits: VerbLimits | None = None,
    ) -> None:
        self._listener = listener
        self._health = health
        self._metrics = metrics
        self.deadline_s = deadline_s
        """Time to read a body and to answer it."""
        self._requests = requests
        self.gate = Gate(limits)

    def of(self, name: str, verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return the handler of a verb."""

        async def handle(request: web.Request) -> web.Response:
            self._requests[name] = self._requests.get(name, 0) + 1
            if refused := self._refuse_unread(request):
                return refused  # no verb was reached, so none is measured
            loop = asyncio.get_running_loop()
            started, status = loop.time(), ERROR
            read = False
            try:
                with (
                    self.gate.admit(name) as admission,
                    span(name, traceparent=request.headers.get(TRACEPARENT, "")) as present,
                ):
                    async with asyncio.timeout(self.deadline_s):
                        body = await admission.read(body_of(request), request.content_length)
                        read = True
                        answer, status = await verb(body)
                    present.set("status", status)
                return web.Response(body=answer, content_type="application/json")
            except WireError as error:
                return self._answer_error(request, error)
            except (web.RequestPayloadError, ConnectionError) as error:
                return text_answer(request, 400, f"the body is broken: {error}")
            except TimeoutError:
                return self._answer_late(request, name, read=read)
            finally:
                self._metrics.verb(name, status, loop.time() - started)

        return handle

    def _refuse_unread(self, request: web.Request) -> web.Response | None:
        """The answer to a request whose body is not even read. None if it is to be read."""
        if problem := self._health.refusal():
            return text_answer(
                request, 503, problem, _retry_after(OVERLOAD_RETRY_S), close=self._health.draining
            )
        if request.content_type != "application/json":
            return text_answer(request, 415, "the body must be application/json")
        if "Content-Encoding" in request.headers:
            return text_answer(request, 415, "the body must not be encoded: send it as it is")
        return None

    def _answer_error(self, request: web.Request, error: WireError) -> web.Response:
        if error.status == 408:
            return self._listener.too_slow(request, str(error))
        headers = _retry_after(_retry_after_s(error))
        if isinstance(error, ScheduleRefused) and error.facts:
            body = orjson.dumps({"error": str(error), **error.facts})
            return web.Response(
                status=error.status, body=body, content_type="application/json", headers=headers
            )
        return text_answer(request, error.status, str(error), headers)

    def _answer_late(self, request: web.Request, name: str, *, read: bool) -> web.Response:
        if not read:
            message = f"the body did not arrive within {self.deadline_s:g} s"
            return self._listener.too_slow(request, message)
        message = f"not answered within {self.deadline_s:g} s"
        if name == BIND:
            note = f"bind {message}; whether it is done shows in the pod"
            return web.Response(body=encode_binding_result(note), content_type="application/json")
        return text_answer(request, 504, message)


def _retry_after_s(error: WireError) -> int | None:
    if isinstance(error, Overloaded):
        return OVERLOAD_RETRY_S
    return error.retry_after_s if isinstance(error, ScheduleRefused) else None


def _retry_after(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(seconds)}


def text_answer(
    request: web.Request,
    status: int,
    text: str,
    headers: Mapping[str, str] | None = None,
    *,
    close: bool = False,
) -> web.Response:
    """Answer with one line of text. The connection ends with it if ``close`` is set, or if a body
    is still to come.
    """
    response = web.Response(status=status, text=text + "\n", headers=headers)
    if close or not request.content.is_eof():  # do not read the rest of the body
        response.force_close()
    return response
