"""What can be told of the attacks without playing them."""

import pytest

from tests.attack import callers, heads
from tests.attack.flood import BEARERS, BEFORE_TLS, FORMS, LEAVERS
from tests.attack.target import LIMITS_MIB, Honest


def test_all_that_is_sent_is_known_and_every_form_is_sent():
    sent = {name for form in heads.FORMS for of_program in form.values() for name in of_program}
    sent |= callers.FORMS.keys()
    assert sent == FORMS.keys() | BEARERS.keys() | BEFORE_TLS.keys() | LEAVERS.keys()


def test_the_limits_are_those_of_the_shipped_containers():
    assert LIMITS_MIB == {"extender": 512, "webhook": 256}


@pytest.mark.parametrize(
    ("took_s", "p99_s"), [([], float("inf")), ([0.1], 0.1), ([0.001] * 98 + [0.5, 0.5], 0.5)]
)
def test_nothing_answered_is_not_answered_in_time(took_s: list[float], p99_s: float):
    assert Honest(took_s).p99_s() == p99_s
