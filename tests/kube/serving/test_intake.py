"""``Intake``: what of a connection's bytes is handed on when, what is kept, and what is too
much.
"""

import pytest
from hypothesis import given, strategies as st

from extender.kube.serving.intake import (
    AHEAD_BYTES_MAX,
    FRAMING_BYTES_MAX,
    HEAD_BYTES_MAX,
    PAUSE_BYTES,
    Intake,
    Stage,
    TooMuchSent,
)

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/bind HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


class Body:
    """What aiohttp has of a body."""

    def __init__(self, *, whole: bool = False) -> None:
        self.total_bytes = 0
        self.whole = whole

    def is_eof(self) -> bool:
        return self.whole


def begun(length: int | None, *, whole: bool = False) -> tuple[Intake, Body]:
    """A request whose turn has come."""
    intake, body = Intake(), Body(whole=whole)
    intake.take(POST)
    intake.begin(body, length)
    return intake, body


def take_again(intake: Intake, data: bytes, *, times: int) -> None:
    for _ in range(times):
        intake.take(data)


def test_a_head_is_handed_on_once_it_is_whole():
    intake = Intake()
    assert (intake.take(GET[:-1]), intake.counted) == (b"", len(GET) - 1)
    assert (intake.take(GET[-1:]), intake.stage, intake.counted) == (GET, Stage.GIVEN, len(GET))


def test_empty_lines_before_a_head_are_no_head():
    intake = Intake()
    assert intake.take(b"\r\n\r\n") == b""
    assert intake.take(b"\r\n" + GET) == GET


def test_what_follows_a_head_waits_for_its_turn():
    intake = Intake()
    assert intake.take(GET + GET + GET[:5]) == GET
    intake.begin(Body(whole=True), None)
    assert intake.should_pause
    assert (intake.end(), intake.stage) == (b"", Stage.ANSWERED)
    assert intake.next() == GET
    intake.begin(Body(whole=True), None)
    intake.end()
    assert (intake.next(), intake.stage, intake.counted) == (b"", Stage.HEAD, 5)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_a_head_that_is_too_large_is_refused_however_it_comes(size: int):
    intake = Intake()
    intake.take(b"GET / HTTP/1.1\r\n")
    with pytest.raises(TooMuchSent, match="head is larger than 65536 bytes"):
        take_again(intake, b"x" * size, times=2 + HEAD_BYTES_MAX // size)
    assert intake.counted <= HEAD_BYTES_MAX + size


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01" + b"\0" * 100_000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_what_is_another_protocol_is_refused_by_its_first_bytes(data: bytes):
    intake = Intake()
    assert intake.take(data) == data[:1024]


def test_a_body_is_handed_on_when_it_is_asked_for_and_no_byte_beyond():
    intake = Intake()
    assert intake.take(POST + b"12") == POST
    intake.begin(Body(), 5)
    assert (intake.counted, intake.ask()) == (len(POST) + 2, b"12")
    assert intake.take(b"345" + GET) == b"345"
    assert (intake.take(GET), intake.should_pause) == (b"", True)
    intake.end()
    assert intake.next() == GET


def test_a_body_that_nobody_asks_for_is_thrown_away_before_the_next_head():
    intake, _ = begun(5)
    assert intake.take(b"12") == b""
    assert (intake.end(), intake.stage) == (b"12", Stage.LINGER)
    assert (intake.take(b"345" + GET), intake.stage) == (b"345", Stage.ANSWERED)
    assert intake.next() == GET


def test_a_request_whose_body_nobody_asks_for_is_not_read_on():
    intake, _ = begun(10_000_000)
    before = intake.should_pause
    intake.take(b"x")
    assert (before, intake.should_pause) == (False, True)
    with pytest.raises(TooMuchSent, match="sent ahead"):
        intake.take(b"x" * AHEAD_BYTES_MAX)


def test_what_comes_with_a_head_stops_the_reading_only_where_it_is_much():
    intake = Intake()
    intake.take(POST + b"x" * (PAUSE_BYTES - 1))
    assert not intake.should_pause
    intake.take(b"x")
    assert intake.should_pause


def test_framing_and_trailers_count_and_a_body_in_chunks_of_a_hundred_bytes_passes():
    intake, body = begun(None)
    intake.ask()
    for _ in range(20_000):
        assert intake.take(b"64\r\n" + b"x" * 100 + b"\r\n")
        body.total_bytes += 100
    with pytest.raises(TooMuchSent, match="framing and trailers"):
        take_again(intake, b"X-Trailer: " + b"x" * 1000 + b"\r\n", times=1000)
    assert intake.handed < FRAMING_BYTES_MAX + body.total_bytes // 8 + 3000


def test_after_a_body_whose_end_only_the_parser_sees_nothing_is_handed_on():
    intake, body = begun(None)
    intake.ask()
    body.whole = True
    assert intake.take(GET) == b""
    intake.end()
    assert intake.stage is Stage.ANSWERED


@given(
    st.lists(st.integers(1, 40), max_size=60), st.lists(st.integers(0, 30), min_size=1, max_size=5)
)
def test_requests_in_any_pieces_are_handed_on_byte_for_byte_one_at_a_time(
    cuts: list[int], bodies: list[int]
):
    sent = [(POST.replace(b"5", b"%d" % size), b"\n" * size) for size in bodies]
    data, intake = b"".join(head + body for head, body in sent), Intake()
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    handed: list[bytes] = []
    waiting = list(sent)

    def serve(part: bytes) -> None:
        """Serves whatever request has become whole."""
        while part or intake.stage in {Stage.ANSWERED, Stage.GIVEN}:
            handed.append(part)
            part = b""
            if intake.stage is Stage.GIVEN:
                body = Body(whole=not waiting[0][1])
                intake.begin(body, len(waiting.pop(0)[1]))
                part = intake.end()
            elif intake.stage is Stage.ANSWERED:
                part = intake.next()

    for piece in [*pieces, data]:
        serve(intake.take(piece))
    assert not waiting
    assert b"".join(handed) == b"".join(head + body for head, body in sent)
