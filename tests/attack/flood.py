"""``python -m tests.attack.flood SPEC``: clients that send what they should not and read nothing,
in a process of their own.

SPEC is JSON: ``{"port": .., "tls": bool, "seconds": .., "forms": {FORM: connections}}``. Who is cut
comes again.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import ssl
import sys
from collections.abc import Callable, Mapping
from typing import Final

import uvloop

NICENESS: Final = 10
"""An attacker has processors of its own: it shall take none from what is attacked."""
AGAIN_S: Final = 0.5
"""Between two connections of one client that is cut."""
_FIELDS: Final = b"".join(b"X-%d: " % number + b"x" * 8000 + b"\r\n" for number in range(120))
_HOST: Final = b"Host: localhost\r\n"


def _post(path: bytes, more: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Type: application/json\r\n%b\r\n" % (path, _HOST, more)


def _trailers(path: bytes) -> bytes:
    return _post(path, b"Transfer-Encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n" + _FIELDS * 10


def _broken(path: bytes) -> bytes:
    return _post(path, b"Transfer-Encoding: chunked\r\n") + b"zz" * 500_000


def _deep(head: bytes, size_bytes: int) -> bytes:
    """JSON that is nearly all structure: an object of five bytes takes 200 once it is decoded."""
    chain = b'{"":' * 200 + b"0" + b"}" * 200 + b","
    return head + chain * ((size_bytes - len(head)) // len(chain)) + b"0]}}"


def _structured(path: bytes, head: bytes, size_bytes: int) -> bytes:
    body = _deep(head, size_bytes)
    return _post(path, b"Content-Length: %d\r\n" % len(body)) + body


_REVIEW: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","object":['
)
_ARGS: Final = b'{"NodeNames":[],"Pod":{"metadata":['

FORMS: Final[Mapping[str, Callable[[], bytes]]] = {
    "heads": lambda: b"GET /livez HTTP/1.1\r\n" + _HOST + _FIELDS,
    "trailers": lambda: _trailers(b"/v1/filter"),
    "review trailers": lambda: _trailers(b"/mutate"),
    "framing": lambda: _broken(b"/v1/filter"),
    "review framing": lambda: _broken(b"/mutate"),
    "pipelines": lambda: (
        b"GET /v1/stream HTTP/1.1\r\n"
        + _HOST
        + b"\r\n"
        + (b"GET /livez HTTP/1.1\r\n" + _HOST + _FIELDS + b"\r\n") * 40
    ),
    "schedules": lambda: _post(b"/v1/schedule", b"Content-Length: 1048576\r\n") + b" " * 1_048_575,
    "schedule trailers": lambda: _trailers(b"/v1/schedule"),
    "plans": lambda: _post(b"/v1/plan", b"Content-Length: 1048576\r\n") + b" " * 1_048_575,
    "reviews": lambda: _post(b"/mutate", b"Content-Length: 1048576\r\n") + b" " * 1_048_575,
    "structure": lambda: _structured(b"/v1/filter", _ARGS, 60 * 1024 * 1024),
    "review structure": lambda: _structured(b"/mutate", _REVIEW, 3_000_000),
    "states": lambda: b"GET /state.json HTTP/1.1\r\n" + _HOST + b"\r\n",
    "metrics": lambda: (b"GET /metrics HTTP/1.1\r\n" + _HOST + b"\r\n") * 20,
}
"""What one client sends, by its name."""
BEFORE_TLS: Final = {"handshakes": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"x" * 8000}
"""The same to a TLS port, instead of a handshake: here, half of a client's first message."""


LEAVERS: Final = {"questions": b"GET /state.json?vpod=a/%d-%b HTTP/1.1\r\nHost: localhost\r\n\r\n"}
"""Who asks something else each time, and leaves at once: what it is, with a number and what makes
it long.
"""
LEAVES_A_SECOND: Final = 100

BEARERS: Final = {
    "made-up tokens": "junk",
    "others' tokens": "system:serviceaccount:tenant:default",
}
"""Who shows another token each time, on a kept connection: what each is made of."""
BEARER_PERIOD_S: Final = 0.1
TOKENS_OF_CLIENT: Final = 1_000
"""Then its first one comes again."""


async def _bearer(port: int, context: ssl.SSLContext | None, user: str, client: int) -> None:
    numbers = itertools.cycle(range(TOKENS_OF_CLIENT))
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            try:
                for number in numbers:
                    token = f"{user} {client}-{number}".encode()
                    bearer = b"Authorization: Bearer %b\r\n" % base64.urlsafe_b64encode(token)
                    writer.write(b"GET /state.json HTTP/1.1\r\n" + _HOST + bearer + b"\r\n")
                    head = await reader.readuntil(b"\r\n\r\n")
                    (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
                    await reader.readexactly(int(length))
                    await asyncio.sleep(BEARER_PERIOD_S)
            finally:
                writer.transport.abort()
        await asyncio.sleep(AGAIN_S)


async def _leaver(port: int, question: bytes) -> None:
    for number in itertools.count():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(question % (number, b"x" * (7_900 if number % 2 else 400)))
            await writer.drain()
            writer.close()
        await asyncio.sleep(1 / LEAVES_A_SECOND)


async def _client(port: int, context: ssl.SSLContext | None, data: bytes) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1)
            try:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(data)
                await writer.drain()
                while not writer.is_closing():
                    # A little more keeps telling whether we were cut: who does not read does not
                    # see the end.
                    await asyncio.sleep(AGAIN_S)
                    writer.write(b"x")
                    await writer.drain()
            finally:
                writer.transport.abort()
                del reader
        await asyncio.sleep(AGAIN_S)


async def _run(spec: Mapping[str, object]) -> None:
    context = None
    if spec["tls"]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    forms = spec["forms"]
    assert isinstance(forms, dict)
    os.nice(NICENESS)
    async with asyncio.timeout(float(str(spec["seconds"]))), asyncio.TaskGroup() as clients:
        for name, count in forms.items():
            if name in LEAVERS:
                for _ in range(count):
                    clients.create_task(_leaver(int(str(spec["port"])), LEAVERS[name]))
                continue
            if name in BEARERS:
                for client in range(count):
                    clients.create_task(
                        _bearer(int(str(spec["port"])), context, BEARERS[name], client)
                    )
                continue
            is_before = name in BEFORE_TLS
            data = BEFORE_TLS[name] if is_before else FORMS[name]()
            for _ in range(count):
                tls = None if is_before else context
                clients.create_task(_client(int(str(spec["port"])), tls, data))


if __name__ == "__main__":
    with contextlib.suppress(TimeoutError):
        uvloop.run(_run(json.loads(sys.argv[1])))
