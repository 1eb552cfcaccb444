"""A rolling restart takes nothing out of service if shares are handed over. In small."""

import pytest

from tests.quality.rolling_restart import AT_ONCE, DRAINED, HANDED_OVER, ROLLED_OUT, restarted

pytestmark = pytest.mark.timeout(90)  # three runs of ten adapters, on a busy machine


def test_requests_succeed_while_all_adapters_are_restarted_only_if_shares_are_handed_over():
    found = {row: restarted(row, pods=10, vpods=100) for row in (HANDED_OVER, DRAINED, AT_ONCE)}
    assert found[HANDED_OVER].requests > 100_000
    assert found[HANDED_OVER].success >= 0.9999
    assert found[AT_ONCE].success < 0.95 < found[DRAINED].success < 0.999
    assert found[HANDED_OVER].took_s <= 2 * found[AT_ONCE].took_s


def test_a_rollout_of_several_pods_at_a_time_is_faster_and_takes_nothing_out_of_service():
    one = restarted(ROLLED_OUT, pods=10, vpods=100, max_unavailable=1)
    two = restarted(ROLLED_OUT, pods=10, vpods=100, max_unavailable="20%")
    assert min(one.success, two.success) >= 0.9999
    assert two.took_s < 0.7 * one.took_s
