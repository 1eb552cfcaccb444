"""What the Deployments say of an installation."""

from typing import Any

import pytest

from extender.cli.doctor.checks.deployed import (
    TOKEN_PATH,
    certificate_secret_of,
    is_kept_by_another,
    scheduler_name_of,
    service_account_of,
)
from tests.cli.doctor.scene import Obj


def of_pods(**spec: Any) -> Obj:
    return {"spec": {"template": {"spec": spec}}}


def a_webhook(*arguments: str, secret: str = "") -> Obj:
    mounted = [{"name": "c", "secret": {"secretName": secret}}] if secret else []
    volumes = [{"name": "tmp", "emptyDir": {}}, *mounted]
    return of_pods(containers=[{"command": list(arguments)}], volumes=volumes)


@pytest.mark.parametrize(
    ("deployment", "secret"),
    [
        pytest.param(None, ("ns", "default"), id="no Deployment that we may see"),
        pytest.param(a_webhook("w", "--secret=a/b"), ("a", "b"), id="its option"),
        pytest.param(
            a_webhook("w", "--cert-dir=/c", secret="mine"), ("ns", "mine"), id="what it mounts"
        ),
        pytest.param(
            a_webhook("w", "--secret=b"), ("ns", "default"), id="an option that is broken"
        ),
    ],
)
def test_which_secret_the_webhook_serves_from(deployment, secret):
    assert certificate_secret_of(deployment, "ns", "default") == secret


def test_the_scheduler_is_the_one_that_the_webhook_assigns_pods_to():
    assert scheduler_name_of(a_webhook("w", "--scheduler-name=theirs"), "blue") == "theirs"
    assert scheduler_name_of(a_webhook("w"), "blue") == "blue"
    assert scheduler_name_of(None, "blue") == "blue"


def test_another_process_keeps_the_certificate_where_the_webhook_has_no_upkeep():
    assert is_kept_by_another(a_webhook("w", "--upkeep=none"))
    assert not is_kept_by_another(a_webhook("w", "--upkeep=only"))
    assert not is_kept_by_another(None)


def mount(volume: str, path: str) -> Obj:
    return {"name": volume, "mountPath": path}


def beside_a_kube_scheduler(*tokens: str) -> Obj:
    """As the chart has it in mode sidecar: an init container makes a token for each process."""
    maker = {
        "command": ["python3", *(f"--token={token}" for token in tokens)],
        "volumeMounts": [mount("service", "/run/service"), mount("other", "/run/other")],
    }
    extender = {"volumeMounts": [mount("tmp", "/tmp"), mount("service", TOKEN_PATH)]}
    return of_pods(
        serviceAccountName="makes-tokens",
        initContainers=[maker],
        containers=[extender, {"volumeMounts": [mount("other", "/etc/token")]}],
    )


@pytest.mark.parametrize(
    ("deployment", "account"),
    [
        pytest.param(None, "", id="no Deployment"),
        pytest.param(of_pods(serviceAccountName="central"), "ns/central", id="the pod's"),
        pytest.param(of_pods(), "ns/default", id="the one that Kubernetes gives"),
        pytest.param(
            beside_a_kube_scheduler("a/scheduler=/run/other", "a/service=/run/service"),
            "a/service",
            id="the one whose token is made for it",
        ),
        pytest.param(
            beside_a_kube_scheduler("a/scheduler=/run/other"),
            "ns/makes-tokens",
            id="the pod's, where tokens are made for others only",
        ),
    ],
)
def test_which_account_the_service_has(deployment, account):
    assert service_account_of(deployment, "ns") == account
