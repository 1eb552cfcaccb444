"""docs/certificates.md says what the code does: its commands, times, metrics and messages."""

import base64
import json
import re
from pathlib import Path

import pytest

from extender.kube.serving import tls
from extender.lab.apiserver.patch import json_patch
from tests.webhook.authorities import NOW, step_of
from tests.webhook.test_rotation import FRESH
from webhook import publication, upkeep
from webhook.caches import WebhookCaches
from webhook.metrics import Metrics
from webhook.rotation import (
    AUTHORITY_RENEWED_BEFORE_END,
    FILE_NAMES,
    NEXT_AGE_MAX,
    SERVING_RENEWED_BEFORE_END,
    Bundle,
    StepName,
)
from webhook.x509 import (
    AUTHORITIES_MAX,
    AUTHORITY_LIFETIME,
    CLOCK_SKEW,
    PEM_BYTES_MAX,
    SERVING_LIFETIME,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "certificates.md").read_text()


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("heading", "step"),
    [
        ("A new authority now", StepName.PROMOTE),
        ("A new serving certificate only", StepName.SIGN),
    ],
)
def test_a_command_by_hand_orders_the_step_that_it_is_said_to(heading: str, step: StepName):
    _, _, after = PAGE.partition(heading)
    found = re.search(r"patch secret vreplica-webhook-certificate --type=json -p '([^']*)'", after)
    assert found is not None
    secret = {
        "data": {
            name: base64.b64encode(part).decode() for name, part in FRESH.files().items() if part
        }
    }
    patched = json_patch(secret, json.loads(found.group(1)))
    bundle = Bundle.from_files(
        {name: base64.b64decode(part) for name, part in patched["data"].items()}
    )
    ordered = step_of(bundle)
    assert ordered is not None
    assert ordered.name is step


def test_the_times_of_the_page_are_those_of_the_code():
    assert (CLOCK_SKEW.total_seconds(), AUTHORITY_LIFETIME.days, NEXT_AGE_MAX.days) == (
        3600,
        730,
        185,
    )
    assert (publication.PUBLISHED_BEFORE_USE_S, tls.WARNING_PERIOD_S) == (600, 6 * 3600)
    assert tls.WARNED_FRACTION == upkeep.PERIOD_JITTER == 0.2, "a fifth"
    lines = [
        f"2 years; the next one signs from {AUTHORITY_RENEWED_BEFORE_END.days} days before the end",
        f"{SERVING_LIFETIME.days} days; renewed {SERVING_RENEWED_BEFORE_END.days} days before the "
        f"end",
        f"{upkeep.UPKEEP_PERIOD_S:.0f} s, give or take a fifth; {upkeep.RETRY_PERIOD_S:.0f} s "
        f"after a failure",
        f"no more than {AUTHORITIES_MAX} authorities and {PEM_BYTES_MAX // 1024} KiB",
        f"it looks at the files every {tls.RELOAD_PERIOD_S:.0f} s",
        f"no certificate after {upkeep.START_ATTEMPTS_MAX} tries",
    ]
    for line in lines:
        assert line in flat(PAGE), line


def test_every_part_of_the_secret_is_on_the_page():
    for name in FILE_NAMES:
        assert f"`{name}`" in PAGE


def test_every_metric_of_the_page_exists():
    metrics = Metrics(WebhookCaches())
    metrics.add_upkeep(lambda: {"serving": NOW}, lambda: 0)
    exported = {
        sample.name for family in metrics.registry.collect() for sample in family.samples
    } | {
        f"vreplica_scheduler_{name}"
        for name in re.findall(
            r'^ +"(\w+)",$', (ROOT / "extender/service/http/server.py").read_text(), re.MULTILINE
        )
    }
    named = set(re.findall(r"vreplica_(?:webhook|scheduler)_\w+", PAGE))
    assert len(named) == 4
    assert named <= exported


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("webhook/upkeep.py", "certificate and registration: "),
        ("webhook/publication.py", "yet: apply the manifests"),
        (
            "webhook/registration.py",
            "leaves its caBundle to cert-manager, but this webhook makes its own certificate",
        ),
        ("webhook/registration.py", "cert-manager has not filled in its caBundle yet"),
        (
            "webhook/registration.py",
            "its caBundle does not hold the authority of the certificate that is served",
        ),
        ("webhook/upkeep.py", "and has not been renewed"),
        ("extender/kube/serving/tls.py", "and nobody has replaced it"),
        ("extender/kube/serving/tls.py", "not reloaded, the old one stays: "),
    ],
)
def test_every_message_of_the_page_is_said(file: str, said: str):
    assert said in flat(PAGE) + " "
    # A long message is written in parts.
    assert said in re.sub(r'"\s+f?"', "", (ROOT / file).read_text())
