"""Which command puts back a missing part of an installation: that of the tool that installed the
rest.

A Helm release does not own objects that kubectl has applied, and ``helm install`` then refuses to
begin ("cannot be imported into the current release"). So the advice follows what is there. If
nothing is there, it is Helm.
"""

from collections.abc import Iterator
from typing import Final

from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.registrations import our_webhooks
from extender.cli.lint.webhook_file import takes_evictions
from extender.model.names import OWN_NAMESPACE
from extender.model.reading import Json, mapping, text

WEBHOOK_MANIFEST: Final = "base/webhook-configurations.yaml"


def install_fix(facts: Facts, manifest: str) -> str:
    """Return the command that puts back the objects of ``manifest``, a path below ``manifests``."""
    ours = list(_ours(facts))
    for obj in ours:
        release = text(obj, "metadata", "annotations", "meta.helm.sh/release-name")
        if release and text(obj, "metadata", "labels", "app.kubernetes.io/managed-by") == "Helm":
            namespace = text(obj, "metadata", "annotations", "meta.helm.sh/release-namespace")
            return (
                f"helm upgrade {release:.60} manifests/helm/vreplica-scheduler -n "
                f"{namespace or facts.namespace:.60} "
                "--reset-then-reuse-values"
            )
    if any(text(obj, "kind") != "CustomResourceDefinition" for obj in ours):
        is_renamed = not facts.names.is_default and manifest != "crds"
        if is_renamed or (manifest == WEBHOOK_MANIFEST and _evictions_wait(facts)):
            # The base has only the default names, and no webhook for evictions.
            override = f"fullnameOverride: {facts.names.service:.60} and its other"
            return (
                f"Apply the chart's objects again: helm template with "
                f"{override if is_renamed else 'its'} values (docs/install.md)"
            )
        if facts.namespace != OWN_NAMESPACE and manifest != "crds":
            # The files of the base name its namespace also in their rules, not only in metadata.
            return (
                f"Apply your kustomization of manifests/base again (namespace: "
                f"{facts.namespace:.60})"
            )
        return (
            f"kubectl apply {'-k' if manifest == 'crds' else '-f'} manifests/{manifest}, as the "
            f"rest of the installation"
        )
    if not facts.names.is_default:
        return (
            f"Install the chart: helm install with fullnameOverride: {facts.names.service:.60} "
            f"(docs/install.md)"
        )
    return (
        "Install the chart: helm install (docs/install.md); where CRDs are there by kubectl, with "
        "--take-ownership. "
        "Without Helm: kubectl apply -k manifests/base"
    )


def _evictions_wait(facts: Facts) -> bool:
    return any(takes_evictions(webhook) for _, _, webhook in our_webhooks(facts))


def _ours(facts: Facts) -> Iterator[Json]:
    """Yield the objects of an installation, with their kind. CRDs come last, because they outlive
    the rest.
    """
    ours = {facts.names.service, facts.names.webhook}
    for plural in (
        "deployments",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ):
        for obj in facts.of(plural).items:
            if text(mapping(obj, "metadata"), "name") in ours:
                yield {**obj, "kind": plural}
    for name in facts.crds_shipped:
        crd = facts.of("customresourcedefinitions").named(name)
        if crd is not None:
            yield {**crd, "kind": "CustomResourceDefinition"}
