"""What is told of certificates and registration, when, and how often."""

import asyncio
import logging
import random
from collections.abc import Collection
from itertools import pairwise

import pytest

from extender.kube.api import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Forbidden
from extender.kube.serving.tls import WARNING_PERIOD_S
from tests.webhook.authorities import DAY, HOSTS, NOW
from tests.webhook.builders import ObjectsApi
from tests.webhook.test_registration import a_configuration
from webhook.certs import CertificateManager
from webhook.registration import Registration
from webhook.rotation import Bundle
from webhook.stores import SecretStore
from webhook.upkeep import PERIOD_JITTER, RETRY_PERIOD_S, UPKEEP_PERIOD_S, Upkeep


class Refusing(ObjectsApi):
    """Secrets may not be written while ``refuses``."""

    refuses = False

    async def update(self, *args, **kwargs):
        if self.refuses:
            raise Forbidden(403, "Forbidden", "secrets is forbidden")
        return await super().update(*args, **kwargs)


class Keeper:
    """A webhook's upkeep with a clock."""

    def __init__(self) -> None:
        self.now_s = NOW
        self.api = Refusing()
        for resource, path in ((MUTATING_WEBHOOKS, "/mutate"), (VALIDATING_WEBHOOKS, "/validate")):
            self.api.put(resource, a_configuration(path))
        self.certificates = CertificateManager(
            SecretStore(self.api, "ns", "c"), HOSTS, now=lambda: self.now_s
        )
        self.upkeep = Upkeep(
            self.certificates,
            Registration(self.api, monotonic=lambda: self.now_s),
            rng=random.Random(1),
            now=lambda: self.now_s,
        )


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


async def test_a_problem_is_told_when_it_comes_and_when_it_has_gone_and_not_each_time(
    caplog: pytest.LogCaptureFixture,
):
    it = Keeper()
    del it.api.objects[("mutatingwebhookconfigurations", "", "vreplica-scheduler")]
    for _ in range(3):
        assert not await it.upkeep.round()
    (line,) = told(caplog)
    assert "no MutatingWebhookConfiguration vreplica-scheduler yet: apply the manifests" in line
    assert it.upkeep.failures == 3
    it.api.put(MUTATING_WEBHOOKS, a_configuration("/mutate"))
    for _ in range(3):
        assert await it.upkeep.round()
    assert told(caplog) == ["certificate and registration: all well again"]
    assert it.upkeep.failures == 3


async def test_a_certificate_that_cannot_be_renewed_is_told_long_before_it_ends_and_again(
    caplog: pytest.LogCaptureFixture,
):
    it = Keeper()
    assert await it.upkeep.round()
    it.api.refuses = True
    it.now_s += 61 * DAY
    assert not await it.upkeep.round()
    assert told(caplog) == ["certificate and registration: 403 Forbidden: secrets is forbidden"]
    it.now_s += 12 * DAY
    for _ in range(3):
        await it.upkeep.round()
    (line,) = told(caplog)
    assert line.startswith(
        "the serving certificate ends in 17.0 days, and has not been renewed: 403 Forbidden"
    )
    it.now_s += WARNING_PERIOD_S
    await it.upkeep.round()
    assert len(told(caplog)) == 1
    it.api.refuses = False
    assert await it.upkeep.round()
    assert told(caplog) == ["certificate and registration: all well again"]
    assert it.certificates.expiry()["serving"] == it.now_s + 90 * DAY


async def test_a_certificate_is_renewed_though_the_registration_may_not_be_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    it = Keeper()
    assert await it.upkeep.round()
    get = it.api.get

    async def only_secrets(resource, *args, **kwargs):
        if resource is not SECRETS:
            raise Forbidden(403, "Forbidden", f"{resource.plural} is forbidden")
        return await get(resource, *args, **kwargs)

    monkeypatch.setattr(it.api, "get", only_secrets)
    it.now_s += 61 * DAY
    assert not await it.upkeep.round()
    (line,) = told(caplog)
    assert "mutatingwebhookconfigurations is forbidden" in line
    assert it.certificates.expiry()["serving"] == it.now_s + 90 * DAY


async def test_a_certificate_that_was_good_enough_at_first_is_served_though_it_cannot_be_renewed(
    caplog: pytest.LogCaptureFixture,
):
    it = Keeper()
    await it.upkeep.round()
    stored = it.api.named(SECRETS, "ns", "c")
    again = Keeper()
    again.api.put(SECRETS, stored)
    again.api.refuses = True
    again.now_s += 61 * DAY
    assert await again.upkeep.first_certificate(asyncio.Event())
    (line,) = told(caplog)
    assert "no good certificate yet: 403 Forbidden" in line


@pytest.mark.looptime
async def test_it_looks_every_minute_and_sooner_after_a_failure_never_in_step_with_others(
    monkeypatch: pytest.MonkeyPatch,
):
    it, rounds = Keeper(), list[float]()
    answers = iter([True] * 20 + [False] * 20)

    async def a_round() -> bool:
        rounds.append(asyncio.get_running_loop().time())
        return next(answers)

    monkeypatch.setattr(it.upkeep, "round", a_round)
    running = asyncio.create_task(it.upkeep.run())
    await asyncio.sleep(20 * UPKEEP_PERIOD_S + 10 * RETRY_PERIOD_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    pauses = [after - before for before, after in pairwise(rounds)]
    for pause, period_s in [
        *((each, UPKEEP_PERIOD_S) for each in pauses[:20]),
        (pauses[20], RETRY_PERIOD_S),
    ]:
        assert (1 - PERIOD_JITTER) * period_s <= pause <= (1 + PERIOD_JITTER) * period_s
    assert len({round(each, 3) for each in pauses[:20]}) == 20


async def test_before_there_is_a_certificate_no_end_of_it_is_told(caplog: pytest.LogCaptureFixture):
    class Nothing:
        served_pem = b""

        async def ensure(self, published: Collection[bytes] = ()) -> Bundle | None:
            return None

    it = Keeper()
    upkeep = Upkeep(
        Nothing(),  # type: ignore[arg-type]
        Registration(it.api, monotonic=lambda: 0.0),
        rng=random.Random(1),
        now=lambda: NOW,
    )
    assert await upkeep.round()
    assert told(caplog) == []
