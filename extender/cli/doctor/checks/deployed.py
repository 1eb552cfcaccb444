"""What the Deployments of an installation say of it: names that their options and volumes give."""

from collections.abc import Iterable, Iterator
from typing import Final

from extender.model.reading import Json, mapping, mappings, text, texts

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a container has the token that it calls the API server with."""

ADAPTERS_PORT: Final = "https-adapters"
"""As our manifests name it."""


def _pod_spec(deployment: Json | None) -> Json:
    return mapping(deployment or {}, "spec", "template", "spec")


def _options(containers: Iterable[Json], option: str) -> Iterator[str]:
    """Yield the values of ``option=VALUE`` in the commands of containers."""
    for container in containers:
        for word in (*texts(container, "command"), *texts(container, "args")):
            name, equals, value = word.partition("=")
            if name == option and equals:
                yield value


def _given(deployment: Json | None, option: str) -> Iterator[str]:
    return _options(mappings(_pod_spec(deployment), "containers"), option)


def is_kept_by_another(webhook: Json | None) -> bool:
    """Whether another process renews the webhook's certificate, according to the webhook's
    Deployment.
    """
    return "none" in _given(webhook, "--upkeep")


def certificate_secret_of(webhook: Json | None, namespace: str, default: str) -> tuple[str, str]:
    """Namespace and name of the Secret that a webhook's Deployment serves from: from its option
    ``--secret``, or else from its volumes.
    """
    for value in _given(webhook, "--secret"):
        where, slash, name = value.partition("/")
        if slash and where and name:
            return where, name
    mounted = [text(one, "secret", "secretName") for one in mappings(_pod_spec(webhook), "volumes")]
    return namespace, next((name for name in mounted if name), default)


def scheduler_name_of(webhook: Json | None, default: str) -> str:
    """The scheduler that a webhook's Deployment assigns adapter pods to."""
    return next(_given(webhook, "--scheduler-name"), default)


def service_account_of(service: Json | None, namespace: str) -> str:
    """``namespace/name`` of the account that the service calls the API server as; "" without a
    Deployment.

    It is the pod's ``serviceAccountName``. But beside a kube-scheduler each process has a token of
    its own account, which an init container makes (``--token=NAMESPACE/NAME=DIRECTORY``) in the
    volume that the process has in place of the pod's token.
    """
    if service is None:
        return ""
    pod = _pod_spec(service)
    volumes = [
        volume for one in mappings(pod, "containers") for volume in _mounted(one, TOKEN_PATH)
    ]
    for maker in mappings(pod, "initContainers"):
        paths = {
            text(one, "name"): text(one, "mountPath") for one in mappings(maker, "volumeMounts")
        }
        made_in = {paths[volume] for volume in volumes if volume in paths}
        for value in _options([maker], "--token"):
            account, _, directory = value.rpartition("=")
            if directory in made_in and account:
                return account
    return f"{namespace}/{text(pod, 'serviceAccountName') or 'default'}"


def serves_adapters(service: Json) -> bool:
    """Whether a service's Deployment has the port of the listener for adapters."""
    return any(
        text(port, "name") == ADAPTERS_PORT
        for container in mappings(_pod_spec(service), "containers")
        for port in mappings(container, "ports")
    )


def _mounted(container: Json, path: str) -> list[str]:
    """Names of the volumes that a container has at ``path``."""
    return [
        text(one, "name")
        for one in mappings(container, "volumeMounts")
        if text(one, "mountPath") == path
    ]
