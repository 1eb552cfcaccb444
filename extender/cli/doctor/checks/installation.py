"""Checks of the installation: the API server's version, our CRDs, running programs, and a
leader.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from extender.cli.doctor.checks.deployed import is_kept_by_another
from extender.cli.doctor.checks.facts import NOT_SERVED, Facts, age_s
from extender.cli.doctor.checks.installed_by import install_fix
from extender.cli.doctor.checks.leases import (
    LEASE_S,
    duration_s,
    leases_of,
    of_other_buckets,
    was_held,
)
from extender.cli.doctor.checks.registrations import elsewhere, our_webhooks
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes, Verdict, bounded
from extender.model.counted import counted, counted_are
from extender.model.reading import Json, key_of, mapping, mappings, sequence, text

MINOR_MIN: Final = 30
"""ValidatingAdmissionPolicy is on by default since 1.30. Without it, only the webhook protects
ledgers.
"""
_MINOR: Final = re.compile(r"v?1\.(\d+)")


def _api(facts: Facts) -> CheckResult:
    if facts.version is None:
        return CheckResult(
            Verdict.UNKNOWN,
            "the API server does not tell its version",
            (),
            "Ask for the right to get /version.",
        )
    said = text(facts.version, "gitVersion") or "no version"
    minor = minor_of(said)
    if minor is not None and minor < MINOR_MIN:
        return CheckResult(
            Verdict.WARNING,
            f"{facts.server} is {said:.80}",
            (f"before 1.{MINOR_MIN} the API server knows no ValidatingAdmissionPolicy",),
            "Only the webhook guards ledgers there: run two replicas of it (docs/security.md).",
        )
    return CheckResult(Verdict.OK, f"{facts.server} is {said:.80}")


def minor_of(version: str) -> int | None:
    """The minor version: 36 for ``v1.36.3``."""
    found = _MINOR.match(version)
    return int(found.group(1)) if found else None


def _rights(facts: Facts) -> CheckResult:
    # A kind that is not served is not a matter of rights. The checks that need it report it.
    unread = [
        f"{plural}: {one.problem}"
        for plural, one in sorted(facts.listed.items())
        if one.problem and one.problem != NOT_SERVED
    ]
    cut = [
        f"{plural}: more than {len(one.items)}, the rest was not looked at"
        for plural, one in facts.listed.items()
        if one.truncated
    ]
    if unread or cut:
        return CheckResult(
            Verdict.UNKNOWN,
            f"{counted(len(unread) + len(cut), 'kind')} could not be read whole",
            bounded(unread + cut),
            "Checks that need them are unknown. Try as a user with the right to list them: "
            "`kubectl auth can-i list KIND -A`.",
        )
    served = sum(one.problem != NOT_SERVED for one in facts.listed.values())
    return CheckResult(Verdict.OK, f"all {counted(served, 'kind')} that are served could be read")


def _crds(facts: Facts) -> CheckResult:
    notes = Notes()
    for name, shipped in sorted(facts.crds_shipped.items()):
        crd = facts.of("customresourcedefinitions").named(name)
        if crd is None:
            notes.errors.append(f"{name} is not there")
            continue
        conditions = {
            text(one, "type"): text(one, "status") for one in mappings(crd, "status", "conditions")
        }
        if conditions.get("Established") != "True":
            notes.errors.append(f"{name} is not Established")
        wanted = set(_properties(_schema(shipped)))
        found = set(_properties(_schema(crd)))
        if missing := sorted(wanted - found):
            notes.errors.append(
                f"{name} does not know {', '.join(missing)[:200]}: it is an older one"
            )
        elif more := sorted(found - wanted):
            notes.warnings.append(
                f"{name} also knows {', '.join(more)[:200]}: it is a newer one than this program"
            )
    return notes.result(
        f"{counted(len(facts.crds_shipped), 'kind')} as this version has them",
        fix=f"{install_fix(facts, 'crds')}; of the version that the service runs.",
    )


def _schema(crd: Json) -> Json:
    versions = mappings(crd, "spec", "versions")
    served = next((one for one in versions if one.get("served") is True), {})
    return mapping(served, "schema", "openAPIV3Schema")


def _properties(schema: Json, path: str = "", depth: int = 10) -> Iterator[str]:
    """Paths of all fields that a structural schema names, except those of the object's metadata."""
    for name, inner in mapping(schema, "properties").items():
        if (
            not isinstance(inner, Mapping)
            or not depth
            or (not path and name in {"apiVersion", "kind", "metadata"})
        ):
            continue
        where = f"{path}.{name}" if path else name
        yield where
        yield from _properties(inner, where, depth - 1)
    items = schema.get("items")
    if isinstance(items, Mapping) and depth:
        yield from _properties(items, f"{path}[]", depth - 1)


def _deployments(facts: Facts) -> CheckResult:
    notes, names = Notes(), facts.names
    seen = []
    otherwise = _running_otherwise(facts)
    webhook = facts.of("deployments").named(names.webhook, facts.namespace)
    upkeep = [names.upkeep] if is_kept_by_another(webhook) else []
    for name in (names.service, names.webhook, *upkeep):
        deployment = facts.of("deployments").named(name, facts.namespace)
        if deployment is None and name in otherwise:
            continue
        if deployment is None:
            notes.warnings.append(
                f"{facts.namespace}/{name} is not there; all is well if it runs otherwise, as on a "
                f"developer's machine"
            )
            continue
        ready, wanted = (
            _number(deployment, "status", "readyReplicas"),
            _number(deployment, "spec", "replicas", default=1),
        )
        seen.append(f"{name} {ready}/{wanted}")
        if not ready:
            notes.errors.append(
                f"{facts.namespace}/{name}: none of {counted(wanted, 'replica')} is ready"
            )
        elif ready < wanted:
            notes.warnings.append(
                f"{facts.namespace}/{name}: {ready} of {counted_are(wanted, 'replica')} ready"
            )
    return notes.result(
        f"ready: {', '.join(seen)}",
        nothing=""
        if seen
        else f"no Deployments: they run otherwise ({', '.join(otherwise.values())})",
        fix=f"kubectl -n {facts.namespace} describe deployment NAME, and logs of its pods. "
        f"{_where(facts)}",
    )


def _where(facts: Facts) -> str:
    """What to do if the installation has another name or namespace."""
    others = elsewhere(facts)
    seen = f" There is: {others}." if others else ""
    return f"--name and --namespace where it is called otherwise, or runs elsewhere.{seen}"


def _running_otherwise(facts: Facts) -> dict[str, str]:
    """Program -> why it seems to run although it has no Deployment, for example as a process on a
    developer's machine.
    """
    found = {}
    held = [age_s(text(one, "spec", "renewTime"), facts.now_s) for one in leases_of(facts)]
    if any(ago_s is not None and abs(ago_s) <= 2 * LEASE_S for ago_s in held):
        found[facts.names.service] = "somebody leads"
    if any(text(raw, "clientConfig", "url") for _, _, raw in our_webhooks(facts)):
        found[facts.names.webhook] = "the webhook is called by URL"
    return found


def _number(obj: Json, *path: str, default: int = 0) -> int:
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if type(value) is int else default


def _leader(facts: Facts) -> CheckResult:
    notes = Notes()
    ours = leases_of(facts)
    others = of_other_buckets(facts, ours)
    deployed = facts.of("deployments").named(facts.names.service, facts.namespace) is not None
    if not ours:
        why = (
            "its Deployment is there, and none of its pods has led yet"
            if deployed or facts.of("deployments").problem
            else "the service is not installed there, or no longer"
        )
        notes.errors.append(f"no Lease {facts.namespace}/{facts.names.service}: {why}")
    holders = []
    for lease in (one for one in ours if one not in others):
        spec, name = mapping(lease, "spec"), key_of(lease)
        holder, ago_s = text(spec, "holderIdentity"), age_s(text(spec, "renewTime"), facts.now_s)
        lasts_s = duration_s(lease)
        if not holder:
            notes.errors.append(f"{name} has no holder: nothing is placed, scaled or repaired")
        elif ago_s is None or ago_s > 2 * lasts_s:
            when = "never" if ago_s is None else f"{ago_s:.0f} s ago"
            notes.errors.append(
                f"{name} is held by {holder[:100]}, renewed {when} (it lasts {lasts_s} s)"
            )
        elif ago_s < -lasts_s:
            notes.warnings.append(
                f"{name} was renewed {-ago_s:.0f} s in the future: our clock, or the leader's, is "
                f"wrong"
            )
        else:
            holders.append(f"{holder[:100]} by {name}")
    old = [text(one, "metadata", "name") for one in others if was_held(one)]
    fixes = [_NOBODY_LEADS] if notes.errors or notes.warnings else []
    fixes += [f"kubectl -n {facts.namespace} delete lease {' '.join(old)}"] if old else []
    notes.warnings += [
        f"{facts.namespace}/{name} is left over from another number of buckets: delete it"
        for name in old
    ]
    return notes.result(
        f"leads: {', '.join(holders[:4])}",
        fix=" ".join(fixes)
        if ours or deployed
        else f"{_where(facts)} {install_fix(facts, 'base/lease.yaml')}",
    )


_NOBODY_LEADS: Final = (
    "Look at the logs of the service; without one that runs nothing is placed. Pods can still be "
    "bound."
)


def _policies(facts: Facts) -> CheckResult:
    notes = Notes()
    bound = {
        text(one, "spec", "policyName")
        for one in facts.of("validatingadmissionpolicybindings").items
        if "Deny" in sequence(one, "spec", "validationActions")
    }
    is_embedded = text(facts.version or {}, "gitVersion").endswith("-embedded")
    names = [facts.names.policy(one) for one in facts.policies_shipped]
    for name in () if is_embedded else names:
        if facts.of("validatingadmissionpolicies").named(name) is None:
            notes.warnings.append(f"ValidatingAdmissionPolicy {name} is not there")
        elif name not in bound:
            notes.warnings.append(
                f"ValidatingAdmissionPolicy {name} is bound by nothing that denies"
            )
    return notes.result(
        f"they deny: {', '.join(names)}",
        nothing="the embedded cluster evaluates no policies" if is_embedded else "",
        bad="ledgers and statuses can be written by others while the webhook is down",
        fix=install_fix(facts, "base/admission-policies.yaml"),
    )


def _skew(facts: Facts) -> CheckResult:
    """A kube-scheduler must not be newer than the API server, and at most one minor version
    older.
    """
    notes = Notes()
    server = minor_of(text(facts.version or {}, "gitVersion"))
    found = []
    for deployment in facts.of("deployments").items:
        if text(deployment, "metadata", "namespace") != facts.namespace:
            continue
        for container in mappings(deployment, "spec", "template", "spec", "containers"):
            image = text(container, "image")
            path, _, tag = image.partition("@")[0].rpartition(":")
            minor = minor_of(tag)
            if not path.endswith("/kube-scheduler") or minor is None:
                continue
            found.append(tag)
            if server is None:
                notes.unknown.append(
                    f"{key_of(deployment)} runs {image[:120]}, the API server's version is not "
                    f"known"
                )
            elif minor > server:
                notes.errors.append(
                    f"{key_of(deployment)} runs {image[:120]}, newer than the API server "
                    f"(1.{server})"
                )
            elif minor < server - 1:
                notes.warnings.append(
                    f"{key_of(deployment)} runs {image[:120]}, more than one version older than "
                    f"the API server (1.{server})"
                )
    return notes.result(
        f"kube-scheduler {', '.join(sorted(set(found)))} beside the extender",
        nothing="" if found else "no kube-scheduler beside the extender",
        fix="Use the kube-scheduler of the API server's minor version: edit the image in the "
        "Deployment.",
    )


INSTALLATION: Final = (
    Check("api-server", "Is the API server reachable, and new enough?", (), _api),
    Check("rights", "May this user read what the checks need?", (), _rights),
    Check(
        "crds",
        "Are VPod and AdapterPool installed, and of this version?",
        ("customresourcedefinitions",),
        _crds,
    ),
    Check("deployments", "Do the service and the webhook run?", ("deployments",), _deployments),
    Check("leader", "Does somebody lead?", ("leases",), _leader),
    Check(
        "version-skew",
        "Does the kube-scheduler beside us go with the API server?",
        ("deployments",),
        _skew,
    ),
    Check(
        "admission-policies",
        "Are ledgers guarded by the API server itself?",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        _policies,
    ),
)
