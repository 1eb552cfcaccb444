import asyncio
import random

import pytest

from extender.kube.api import TooManyRequests
from extender.kube.ratelimit import PAUSE_MAX_S, Backoff, BackoffPolicy, TokenBucket

pytestmark = pytest.mark.looptime


async def take(bucket: TokenBucket, who: str, log: list[tuple[str, float]]) -> None:
    await bucket.acquire()
    log.append((who, round(asyncio.get_running_loop().time(), 3)))


async def test_a_burst_passes_at_once_and_then_requests_follow_at_the_rate_in_order():
    bucket, log = TokenBucket(qps=10, burst=3), list[tuple[str, float]]()
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(take(bucket, f"{i}", log) for i in range(6)))
    assert [(who, round(at - began, 3)) for who, at in log] == [
        ("0", 0),
        ("1", 0),
        ("2", 0),
        ("3", 0.1),
        ("4", 0.2),
        ("5", 0.3),
    ]


async def test_an_idle_bucket_fills_up_to_its_burst_and_no_further():
    bucket, log = TokenBucket(qps=10, burst=2), list[tuple[str, float]]()
    await asyncio.gather(*(take(bucket, "x", log) for _ in range(2)))
    await asyncio.sleep(100)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(take(bucket, "x", log) for _ in range(3)))
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.1)


async def test_a_cancelled_waiter_takes_no_token_and_delays_nobody():
    bucket, log = TokenBucket(qps=1, burst=1), list[tuple[str, float]]()
    began = asyncio.get_running_loop().time()
    tasks = [asyncio.create_task(take(bucket, f"{i}", log)) for i in range(4)]
    await asyncio.sleep(0.5)
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [who for who, _ in log] == ["0", "3"]
    assert log[1][1] - began == pytest.approx(1.0)
    assert bucket.waiting == 0


async def test_a_pause_holds_everyone_even_the_one_who_waits_already():
    bucket = TokenBucket(qps=10, burst=1)
    began = asyncio.get_running_loop().time()
    await bucket.acquire()
    waiting = asyncio.create_task(bucket.acquire())
    await asyncio.sleep(0.05)
    bucket.pause(5)
    bucket.pause(1)
    await waiting
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.15), (
        "the pause, and the next token"
    )


async def test_after_a_pause_those_who_waited_come_at_the_rate_and_not_in_a_burst():
    bucket, log = TokenBucket(qps=10, burst=100), list[tuple[str, float]]()
    began = asyncio.get_running_loop().time()
    await bucket.acquire()
    bucket.pause(5)
    await asyncio.gather(*(take(bucket, "x", log) for _ in range(4)))
    assert [round(at - began, 3) for _, at in log] == [5.0, 5.1, 5.2, 5.3]
    assert bucket.waited_s == pytest.approx(5.0 + 5.1 + 5.2 + 5.3)


async def test_a_pause_is_never_longer_than_its_limit():
    bucket = TokenBucket(qps=0, burst=0)
    bucket.pause(1e9)
    began = asyncio.get_running_loop().time()
    await bucket.acquire()
    assert asyncio.get_running_loop().time() - began == pytest.approx(PAUSE_MAX_S)


async def test_a_full_queue_refuses_without_waiting():
    bucket = TokenBucket(qps=1, burst=1, waiters_max=1)
    await bucket.acquire()
    waiting = asyncio.create_task(bucket.acquire())
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await bucket.acquire()
    await waiting


@pytest.mark.parametrize(("qps", "burst"), [(-1, 1), (1, 0)])
def test_a_rate_that_could_never_pass_is_refused(qps: float, burst: int):
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(qps, burst)


def test_backoff_doubles_to_its_cap_and_forgets_after_a_quiet_time():
    backoff = Backoff(random.Random(1), BackoffPolicy(jitter=0))
    assert [backoff.next_s(0) for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert backoff.next_s(121) == 0.8
    backoff.next_s(121)
    backoff.reset()
    assert backoff.next_s(121) == 0.8


def test_backoff_is_stretched_by_up_to_its_length_and_never_below_retry_after():
    backoff = Backoff(random.Random(1))
    assert all(0.8 <= Backoff(random.Random(seed)).next_s(0) < 1.6 for seed in range(100))
    assert backoff.next_s(0, at_least_s=20) == 20
