"""Checks of the webhook's registration: whether it exists, reaches the webhook and is trusted, and
which other requests it would block.
"""

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.installed_by import WEBHOOK_MANIFEST, install_fix
from extender.cli.doctor.checks.registrations import (
    KINDS,
    PLURALS,
    elsewhere,
    labels_of_pods,
    our_webhooks,
    stampers,
)
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.cli.lint.codes import Subject
from extender.cli.lint.webhook_file import MUTATING, check_webhook_file
from extender.config.document import Document
from extender.model.counted import counted
from extender.model.reading import Json, key_of, mapping, mappings, sequence, text

EXPIRY_WARN: Final = timedelta(days=14)
"""The webhook renews its certificate a month before the end. With less left, the renewal has
failed.
"""
NONE_REGISTERED: Final = "no webhook of ours is registered"
_REACH: Final = frozenset({"VS201", "VS202", "VS203"})
_LEFT_OUT: Final = "VS211"
"""The finding about labels that a selector requires besides the pool's. Here the selectors are
compared with the pools and namespaces of the cluster instead.
"""


def _note_findings(facts: Facts, notes: Notes, *, reach: bool) -> None:
    """Note what ``config check`` finds in the registrations; with ``reach``, only what concerns
    the objects that they are called for, else the rest.
    """
    registrations = {name: obj for name, obj, _ in our_webhooks(facts)}
    for name, obj in registrations.items():
        subject = Subject(Document(name, obj), obj)
        check_webhook_file(subject, facts.namespace)
        for finding in subject.findings:
            code = finding.code.code
            seen_elsewhere = code == _LEFT_OUT and finding.field.endswith("Selector")
            if (code in _REACH) is reach and not seen_elsewhere:
                line = f"{name}: {finding.field}: {finding.message} ({code})"
                (notes.errors if finding.is_error else notes.warnings).append(line)


def _registration(facts: Facts) -> CheckResult:
    notes = Notes()
    names = list(dict.fromkeys(name for name, _, _ in our_webhooks(facts)))
    for kind, _ in KINDS:
        if not any(name.startswith(kind) for name in names):
            notes.errors.append(
                f"no {kind} {facts.names.service}: adapter pods are not stamped, and objects are "
                f"not checked"
            )
    others = elsewhere(facts) if notes.errors else ""
    _note_findings(facts, notes, reach=False)
    if any(name.startswith(MUTATING) for name in names):
        _pools_reached(facts, notes)
    fix = install_fix(facts, WEBHOOK_MANIFEST)
    return notes.result(
        f"registered: {', '.join(names)}",
        fix=f"{fix}. Another installation: {others}." if others else fix,
    )


def _pools_reached(facts: Facts, notes: Notes) -> None:
    """Find pools whose pods no installation would stamp, judging by the labels of the pod template
    and the namespace.
    """
    webhooks = stampers(facts)
    known = facts.of("namespaces")
    for pool in facts.of("adapterpools").items:
        namespace = text(pool, "metadata", "namespace")
        labels = labels_of_pods(facts, pool)
        if not webhooks or any(one.stamps(namespace, labels) for one in webhooks):
            continue
        line = (
            f"pods of pool {key_of(pool)} are left out by objectSelector or namespaceSelector: "
            f"they are not stamped"
        )
        stateful_set = facts.of("statefulsets").named(text(pool, "spec", "statefulSet"), namespace)
        unseen = facts.of("statefulsets").problem if stateful_set is None else ""
        if unseen:
            notes.unknown.append(
                f"{line}, unless labels of the pod template say otherwise: {unseen}"
            )
        elif known.named(namespace) is None and any(
            mapping(one.raw, "namespaceSelector") for one in webhooks
        ):
            notes.unknown.append(
                f"{line}, unless labels of the namespace say otherwise: "
                f"{known.problem or 'it is not there'}"
            )
        else:
            notes.errors.append(line)


def _selectors(facts: Facts) -> CheckResult:
    notes = Notes()
    _note_findings(facts, notes, reach=True)
    return notes.result(
        "adapter pods only; kube-system and our own namespace are left alone",
        nothing="" if any(our_webhooks(facts)) else NONE_REGISTERED,
        fix="Set an objectSelector on the label vreplica.dev/pool, and failurePolicy: Ignore.",
    )


def _certificate(facts: Facts) -> CheckResult:
    notes, until = Notes(), []
    now = datetime.fromtimestamp(facts.now_s, UTC)
    for name, _, raw in our_webhooks(facts):
        where = f"{name}, {text(raw, 'name')}"
        bundle = _decoded(text(raw, "clientConfig", "caBundle"))
        if not bundle:
            notes.errors.append(f"{where}: no caBundle: the API server cannot verify the webhook")
            continue
        shown, problem = _shown(facts, raw)
        if problem:
            notes.unknown.append(f"{where}: {problem}")
            continue
        try:
            certificate = x509.load_pem_x509_certificate(shown)
            authorities = x509.load_pem_x509_certificates(bundle)
        except ValueError as error:
            notes.errors.append(f"{where}: a certificate cannot be read: {error}")
            continue
        ends = certificate.not_valid_after_utc
        until.append(ends)
        if not any(_signed_by(certificate, one) for one in authorities):
            notes.errors.append(
                f"{where}: the certificate is signed by none of the caBundle's authorities"
            )
        if ends <= now:
            notes.errors.append(f"{where}: the certificate ended {ends.isoformat()}")
        elif ends - now < EXPIRY_WARN:
            notes.warnings.append(
                f"{where}: the certificate ends {ends.isoformat()} and was not renewed"
            )
    return notes.result(
        f"trusted, until {min(until).date().isoformat()}" if until else "",
        nothing="" if until else NONE_REGISTERED,
        fix="Look at the webhook's log: it renews certificates and writes caBundle itself, once a "
        "minute.",
    )


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _shown(facts: Facts, raw: Json) -> tuple[bytes, str]:
    """The certificate that the webhook serves with, or why it is not known."""
    url = text(raw, "clientConfig", "url")
    if url:
        seen = facts.certificates.get(url)
        return (seen.pem, seen.problem) if seen is not None else (b"", "was not asked")
    secrets = facts.of("secrets")
    namespace, name = facts.certificate_secret
    if secrets.problem:
        return b"", f"Secret {namespace}/{name}: {secrets.problem}"
    secret = secrets.named(name, namespace)
    pem = _decoded(text(secret, "data", "tls.crt")) if secret is not None else b""
    missing = "has no tls.crt" if secret is not None else "is not there"
    return pem, "" if pem else f"Secret {namespace}/{name} {missing}"


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _endpoints(facts: Facts) -> CheckResult:
    notes = Notes()
    services = {
        (text(service, "namespace"), text(service, "name"))
        for _, _, raw in our_webhooks(facts)
        if (service := mapping(raw, "clientConfig", "service"))
    }
    for namespace, name in sorted(services):
        if facts.of("services").named(name, namespace) is None:
            notes.errors.append(f"Service {namespace}/{name} is not there")
            continue
        slices = facts.of("endpointslices")
        if slices.problem:
            notes.unknown.append(f"Service {namespace}/{name}: its endpoints: {slices.problem}")
        elif not _ready_addresses(facts, namespace, name):
            notes.errors.append(f"Service {namespace}/{name} has no endpoint that is ready")
    return notes.result(
        f"{counted(len(services), 'Service')} with ready endpoints",
        nothing="" if services else "no webhook of ours is called by a Service",
        fix=f"kubectl -n {facts.namespace} get pods -l "
        f"app.kubernetes.io/name={facts.names.webhook}: it becomes ready once it has listed its "
        f"caches.",
    )


def _ready_addresses(facts: Facts, namespace: str, name: str) -> int:
    return sum(
        len(sequence(endpoint, "addresses"))
        for one in facts.of("endpointslices").items
        if text(one, "metadata", "namespace") == namespace
        and text(one, "metadata", "labels", "kubernetes.io/service-name") == name
        for endpoint in mappings(one, "endpoints")
        if mapping(endpoint, "conditions").get("ready") is not False
    )


WEBHOOKS: Final = (
    Check(
        "webhook-registration", "Is the webhook called for adapter pods?", PLURALS, _registration
    ),
    Check(
        "webhook-selectors",
        "Would the webhook hold up kube-system, or its own namespace?",
        PLURALS,
        _selectors,
    ),
    Check(
        "webhook-certificate",
        "Does the API server trust the webhook, and for how long?",
        PLURALS,
        _certificate,
    ),
    Check(
        "webhook-endpoints",
        "Does the webhook's Service lead anywhere?",
        (*PLURALS, "services"),
        _endpoints,
    ),
)
