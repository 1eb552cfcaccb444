"""Of the webhook's registrations: what they reach, and whether they are trusted."""

import pytest

from extender.cli.doctor.checks.facts import Certificate
from extender.cli.doctor.checks.verdict import Verdict
from tests.cli.doctor.breaking import (
    BROKEN,
    Break,
    E,
    U,
    W,
    assert_found_alone,
    by_url,
    empty,
    set_on_first,
    webhook,
)
from tests.cli.doctor.scene import Scene, a_bundle, text_of

DAY_S = 86_400


def serves(pem: bytes) -> Break:
    return lambda scene: scene.first("secrets")["data"].update({"tls.crt": text_of(pem)})


DEMANDS = {"matchLabels": {"stamped": "yes"}}

ROWS = [
    pytest.param(
        empty("mutatingwebhookconfigurations"),
        "webhook-registration",
        E,
        "no MutatingWebhookConfiguration",
        id="no webhook",
    ),
    pytest.param(
        webhook(timeoutSeconds=30), "webhook-registration", W, "VS204", id="a slow webhook"
    ),
    pytest.param(
        webhook(objectSelector=DEMANDS),
        "webhook-registration",
        E,
        "pods of pool knative-eventing/dispatcher are left out",
        id="pods without a label that the webhook wants",
    ),
    pytest.param(
        webhook(namespaceSelector=DEMANDS),
        "webhook-registration",
        E,
        "are left out",
        id="a namespace without a label that the webhook wants",
    ),
    pytest.param(
        lambda s: (
            webhook(namespaceSelector=DEMANDS)(s),
            s.listed.update(namespaces="forbidden: no"),
        ),
        "webhook-registration",
        U,
        "forbidden",
        id="namespaces that may not be read, and the webhook wants a label",
    ),
    pytest.param(
        webhook(matchConditions=[{"name": "never", "expression": "false"}]),
        "webhook-registration",
        W,
        "never: not evaluated here",
        id="conditions that only the API server evaluates",
    ),
    pytest.param(
        webhook(objectSelector={}, failurePolicy="Fail"),
        "webhook-selectors",
        E,
        "kube-system",
        id="a webhook that locks kube-system",
    ),
    pytest.param(
        webhook(objectSelector={}),
        "webhook-selectors",
        W,
        "kube-system",
        id="a webhook that slows kube-system down",
    ),
    pytest.param(
        serves(a_bundle().cert_pem),
        "webhook-certificate",
        E,
        "signed by none",
        id="another authority's certificate",
    ),
    pytest.param(serves(b"x"), "webhook-certificate", E, "cannot be read", id="no certificate"),
    pytest.param(
        lambda s: s.more.update(now_s=1_800_000_000.0 + 80 * DAY_S),
        "webhook-certificate",
        W,
        "was not renewed",
        id="it ends soon",
    ),
    pytest.param(
        lambda s: s.more.update(now_s=1_800_000_000.0 + 91 * DAY_S),
        "webhook-certificate",
        E,
        "ended",
        id="it has ended",
    ),
    pytest.param(
        lambda s: s.listed.update(secrets="forbidden: no"),
        "webhook-certificate",
        U,
        "forbidden",
        id="a Secret that may not be read",
    ),
    pytest.param(
        by_url(Certificate(problem="no answer")),
        "webhook-certificate",
        U,
        "no answer",
        id="a webhook out of our reach",
    ),
    pytest.param(
        by_url(Certificate(a_bundle().cert_pem)),
        "webhook-certificate",
        E,
        "signed by none",
        id="another server at the URL",
    ),
    pytest.param(
        empty("services"),
        "webhook-endpoints",
        E,
        "Service vreplica-system/vreplica-webhook is not there",
        id="no Service",
    ),
    pytest.param(
        set_on_first("endpointslices", "endpoints", value=[]),
        "webhook-endpoints",
        E,
        "no endpoint that is ready",
        id="no endpoints",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def test_what_a_selector_of_the_webhook_demands_is_no_matter_where_all_pools_meet_it():
    scene = Scene()
    webhook(objectSelector=DEMANDS, namespaceSelector=DEMANDS)(scene)
    scene.first("statefulsets")["spec"]["template"]["metadata"]["labels"]["stamped"] = "yes"
    scene.first("namespaces")["metadata"]["labels"] = {"stamped": "yes"}
    assert scene.results()["webhook-registration"].verdict is Verdict.OK


def test_advice_for_a_registration_with_the_webhook_for_evictions_keeps_that_webhook():
    scene = Scene()
    evictions = scene.first("validatingwebhookconfigurations")["webhooks"][-1]
    evictions["clientConfig"]["service"]["path"] = "/validate"
    found = scene.results()["webhook-registration"]
    assert (found.verdict, "'/validate', not /evict" in found.evidence[0]) == (E, True)
    assert "helm template" in found.fix
    assert "base/webhook-configurations.yaml" not in found.fix


def test_what_is_not_known_of_a_pools_pods_is_not_said_to_be_wrong():
    scene = Scene()
    webhook(objectSelector=DEMANDS)(scene)
    scene.listed["statefulsets"] = "forbidden: sets"
    found = scene.results()["webhook-registration"]
    assert found.verdict is Verdict.UNKNOWN
    assert "unless labels of the pod template say otherwise: forbidden: sets" in " ".join(
        found.evidence
    )
