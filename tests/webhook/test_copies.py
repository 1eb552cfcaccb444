"""Clients that have copies of ``ca.crt``: a copy that is renewed in time always has the authority
that signs.
"""

from datetime import UTC, datetime

from extender.kube.api import SECRETS
from tests.webhook.authorities import DAY, HOSTS, NOW
from tests.webhook.builders import ObjectsApi
from webhook.certs import CertificateManager
from webhook.copies import COPIED_WITHIN, Copies
from webhook.rotation import Bundle
from webhook.stores import SecretStore
from webhook.x509 import certificates_in, serving_problem

YEARS = 6


class Keeper:
    """The upkeep of a Secret, with a clock."""

    def __init__(self) -> None:
        self.now_s = NOW
        self.api = ObjectsApi()
        self._store = SecretStore(self.api, "ns", "c")
        self.certificates = CertificateManager(self._store, HOSTS, now=lambda: self.now_s)
        self.copies = Copies(now=lambda: self.now_s)

    async def round(self) -> Bundle:
        assert await self.copies.reconcile(self.certificates) == []
        stored = await self._store.load()
        assert stored.bundle is not None
        return stored.bundle


async def test_a_copy_as_old_as_is_allowed_verifies_every_certificate_of_six_years():
    keeper, authorities = Keeper(), set()
    copy = (await keeper.round()).ca_pem
    age_days = 0
    for _ in range(YEARS * 365):
        keeper.now_s += DAY
        age_days += 1
        bundle = await keeper.round()
        authorities.add(bundle.ca_key_pem)
        now = datetime.fromtimestamp(keeper.now_s, UTC)
        assert serving_problem(bundle.serving, certificates_in(copy), HOSTS, now) == ""
        if age_days == COPIED_WITHIN.days:
            copy, age_days = bundle.ca_pem, 0
    assert len(authorities) > YEARS / 2


async def test_no_other_object_than_the_secret_is_touched():
    keeper = Keeper()
    await keeper.round()
    assert {resource for resource, *_ in keeper.api.objects} == {SECRETS.plural}
