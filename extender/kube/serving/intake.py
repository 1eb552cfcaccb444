"""``Intake``: what one connection has sent, apart from a body that is being read: heads, framing
and trailers of bodies, requests sent ahead.

aiohttp limits a line, a field and the number of fields, not their sum: a head may have 128 fields
of 8 KiB, and a connection may have 32 such heads waiting. So bytes are counted before aiohttp sees
them, and aiohttp gets one request at a time:

.. code-block:: text

            a blank line: the head is         its turn          the handler asks
            handed on                         has come          for the body
    HEAD ----------------------------> GIVEN ---------> SERVED -----------------> BODY
     ^                                                     | the answer is decided |
     |                      the body is whole              '-----------+-----------'
     '-- ANSWERED <-------------------------------- LINGER <-----------'
      the answer is taken

- HEAD: bytes are kept until a head is whole. A head over ``HEAD_BYTES_MAX`` is refused.
- GIVEN, SERVED, ANSWERED: bytes are kept, and the connection is not read any more.
- BODY: bytes are handed on, up to the announced length. If none was announced, what is handed on
  beyond the body's own bytes is framing and trailers: at most ``FRAMING_BYTES_MAX`` and a share of
  the body.
- LINGER: like BODY, for a body that nobody has read to its end. aiohttp throws it away, so that its
  sender reads the answer.

``counted`` and ``arrived`` measure all of that. The listener limits what all connections take
together.
"""

import re
from enum import Enum, auto
from typing import Final, Protocol

from extender.model.errors import VReplicaError

HEAD_BYTES_MAX: Final = 64 * 1024
AHEAD_BYTES_MAX: Final = 512 * 1024
"""Bytes kept while a request is served. Several reads fit, because a paused connection may bring
one more.
"""
PAUSE_BYTES: Final = 64 * 1024
"""If so many bytes arrive before a request's turn, reading pauses. Fewer are most likely the body
that came with its head.
"""
FRAMING_BYTES_MAX: Final = 64 * 1024
FRAMING_SHARE: Final = 8
"""One byte of framing is allowed for so many of a body. Chunks of a hundred bytes pass."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_EMPTY_LINES: Final = re.compile(rb"[\r\n]+")
_NO_HEAD: Final = re.compile(rb"[^A-Z\r\n]|PRI ")
"""The start of another protocol: TLS, HTTP/2. aiohttp refuses it before a head ends."""
NO_HEAD_BYTES: Final = 1024
"""How much of such input aiohttp gets."""


class TooMuchSent(VReplicaError):
    """The connection has sent more than it may: a head, framing, or requests ahead."""


class Stage(Enum):
    """The stage of one connection; see the module's docstring."""

    HEAD = auto()
    GIVEN = auto()
    SERVED = auto()
    BODY = auto()
    LINGER = auto()
    ANSWERED = auto()


class CountedBody(Protocol):
    """The part of aiohttp's ``StreamReader`` that is used here."""

    total_bytes: int
    """Bytes of the body, without framing, that it has received."""

    def is_eof(self) -> bool:
        """Whether all of it has arrived."""
        ...


class Intake:
    """The bytes of one connection on their way to aiohttp. The caller hands on at once what a
    method returns.
    """

    def __init__(self) -> None:
        self.stage = Stage.HEAD
        self._waiting = bytearray()
        self._searched = 0
        """Bytes of ``_waiting`` without the end of a head."""
        self._head_bytes = 0
        """Size of the head that is being served."""
        self._body: CountedBody | None = None
        self._left: int | None = None
        """Bytes of the body still to come; None where its length was not announced."""
        self._passed = 0
        """Bytes handed on of the body and its framing."""

    @property
    def counted(self) -> int:
        """Bytes in memory that belong to no body, or to one that nobody has asked for; without
        ``arrived``.
        """
        return self.handed + (0 if self.stage is Stage.GIVEN else len(self._waiting))

    @property
    def arrived(self) -> int:
        """Bytes that came with a head whose turn has not come: most likely a body that is about to
        be asked for.
        """
        return len(self._waiting) if self.stage is Stage.GIVEN else 0

    @property
    def handed(self) -> int:
        """The part of ``counted`` that aiohttp has: a head, framing, trailers."""
        return self._head_bytes + self._framing()

    @property
    def should_pause(self) -> bool:
        """Whether to stop reading the connection for now."""
        if self.stage in {Stage.GIVEN, Stage.ANSWERED}:
            return len(self._waiting) >= PAUSE_BYTES
        return bool(self._waiting) and self.stage is not Stage.HEAD

    @property
    def is_chunked(self) -> bool:
        """Whether there is a body whose length was not announced."""
        return self._body is not None and self._left is None

    def take(self, data: bytes) -> bytes:
        """Accept bytes from the connection. Raises TooMuchSent."""
        if self.stage in {Stage.BODY, Stage.LINGER} and self._is_wanted():
            return self._of_the_body(data)
        self._waiting += data
        if self.stage is Stage.HEAD:
            return self._whole_head()
        if len(self._waiting) > AHEAD_BYTES_MAX:
            raise TooMuchSent(f"more than {AHEAD_BYTES_MAX} bytes were sent ahead")
        return b""

    def begin(self, body: CountedBody, length: int | None) -> None:
        """A request's turn has come. ``length``: its Content-Length, in bytes."""
        self.stage = Stage.SERVED
        self._body, self._left, self._passed = body, length, 0

    def ask(self) -> bytes:
        """The handler wants the request's body. Raises TooMuchSent."""
        if self.stage is not Stage.SERVED or not self._is_wanted():
            return b""
        self.stage = Stage.BODY
        return self._of_the_body(b"")

    def end(self) -> bytes:
        """The answer is decided. Raises TooMuchSent."""
        asked = self.ask()
        self.stage = Stage.LINGER if self._is_wanted() else Stage.ANSWERED
        return asked

    def next(self) -> bytes:
        """The answer is taken, and the next head may be handed on. Raises TooMuchSent."""
        if self.stage is not Stage.ANSWERED:
            return b""
        self.stage, self._body = Stage.HEAD, None
        self._head_bytes = self._searched = self._passed = 0
        return self._whole_head()

    def _is_wanted(self) -> bool:
        """Whether more of the body is to come."""
        return self._left != 0 and self._body is not None and not self._body.is_eof()

    def _framing(self) -> int:
        return (
            max(0, self._passed - self._body.total_bytes)
            if self.is_chunked and self._body is not None
            else 0
        )

    def _whole_head(self) -> bytes:
        """The waiting head, once its end is there."""
        if not self._searched and (empty := _EMPTY_LINES.match(self._waiting)) is not None:
            size = empty.end()
            del empty  # a match locks the bytearray
            del self._waiting[:size]
        if not self._searched and _NO_HEAD.match(self._waiting) is not None:
            self.stage = Stage.GIVEN
            return self._shift(NO_HEAD_BYTES)
        end = _HEAD_END.search(self._waiting, max(0, self._searched - 2))
        size, is_whole = (end.end(), True) if end is not None else (len(self._waiting), False)
        del end
        if size > HEAD_BYTES_MAX:
            raise TooMuchSent(f"the head is larger than {HEAD_BYTES_MAX} bytes")
        if not is_whole:
            self._searched = size
            return b""
        self.stage, self._head_bytes = Stage.GIVEN, size
        return self._shift(size)

    def _of_the_body(self, data: bytes) -> bytes:
        assert self._body is not None
        # Check the bytes handed on before: aiohttp has put the body's part of them into the body by
        # now.
        if self._framing() > FRAMING_BYTES_MAX + self._body.total_bytes // FRAMING_SHARE:
            raise TooMuchSent(
                f"more than {FRAMING_BYTES_MAX} bytes around a body are framing and trailers"
            )
        if self._waiting or (self._left is not None and len(data) > self._left):
            self._waiting += data
            data = self._shift(
                len(self._waiting) if self._left is None else min(self._left, len(self._waiting))
            )
        self._passed += len(data)
        if self._left is not None:
            self._left -= len(data)
            if not self._left and self.stage is Stage.LINGER:
                self.stage = Stage.ANSWERED
        return data

    def _shift(self, size: int) -> bytes:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        return data
