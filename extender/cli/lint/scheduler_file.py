"""Checks a KubeSchedulerConfiguration or a legacy Policy: what kube-scheduler refuses, and whether
it matches the service.

Our extender is the one that manages ``vreplica.dev/slots``, or else the first with a bindVerb or
with /v1 in its urlPrefix. It has to manage the resource only in the cluster's own kube-scheduler,
which schedules other pods too. kube-scheduler's ``pkg/scheduler/extender.go`` says what each field
does: the verb is appended to urlPrefix, enableHTTPS without a CA turns verification off, and errors
of an ignorable extender count as approval.
"""

import re
from collections.abc import Mapping
from typing import Final

from extender.cli.lint.codes import Subject
from extender.cli.lint.extender_entry import check_extender
from extender.cli.lint.scheduler_settings import check_settings
from extender.config.kube_scheduler import FieldError, SchedulerConfig
from extender.config.kube_scheduler_file import (
    EXTENDER_FIELDS,
    TLS_FIELDS,
    read_configuration,
    read_policy,
)
from extender.config.model import Config
from extender.config.nearest import did_you_mean, with_hint
from extender.model.names import DEFAULT_SCHEDULER_NAME, SLOTS_RESOURCE
from extender.model.reading import Json, mapping, mappings, text

POLICY: Final = "Policy"
_CODES: Final = ((re.compile(r"\.weight$"), "VS110"), (re.compile(r"^extenders$"), "VS112"))
_SCHEDULER_LEASE: Final = ("kube-system", "kube-scheduler")
"""The default of kube-scheduler."""


def check_scheduler_file(subject: Subject, given: Config | None) -> str:
    """Add what is wrong with the file; return a summary. ``given``: the service's configuration, if
    known.
    """
    config = given or Config()
    legacy = subject.kind == POLICY
    read, errors = (read_policy if legacy else read_configuration)(subject.raw)
    for error in errors:
        _refused(subject, error)
    if not legacy:
        check_settings(subject)
    index = _ours(subject)
    if index is None:
        subject.found("VS101", "extenders", "none has a bindVerb, or a urlPrefix that ends in /v1")
    else:
        shared = legacy or any(
            one.scheduler_name == DEFAULT_SCHEDULER_NAME for one in read.profiles
        )
        check_extender(subject, index, given, legacy=legacy, shared=shared)
    _check_profiles(subject, read, config, legacy=legacy)
    if not legacy:
        _check_lease(subject, read, config)
    refused = any(one.code.code in {"VS100", "VS110", "VS112"} for one in subject.findings)
    verdict = "kube-scheduler would refuse it" if refused else "nothing that kube-scheduler refuses"
    return f"{verdict}; extenders: {len(read.extenders)}"


def _refused(subject: Subject, error: FieldError) -> None:
    code = next((code for pattern, code in _CODES if pattern.search(error.field)), "VS100")
    known = TLS_FIELDS if ".tlsConfig." in error.field else EXTENDER_FIELDS
    unknown = error.detail.startswith("unknown field")
    hint = did_you_mean(error.field.rpartition(".")[2], known) if unknown else ""
    subject.found(code, error.field, with_hint(error.detail or error.type, hint))


def _ours(subject: Subject) -> int | None:
    extenders = mappings(subject.raw, "extenders")
    for index, raw in enumerate(extenders):
        resources = raw.get("managedResources")
        listed = resources if isinstance(resources, list) else []
        if any(isinstance(one, Mapping) and one.get("name") == SLOTS_RESOURCE for one in listed):
            return index
    # Else the first extender that binds, or serves at our path.
    for index, raw in enumerate(extenders):
        if text(raw, "bindVerb") or "/v1" in text(raw, "urlPrefix"):
            return index
    return None


def _check_profiles(
    subject: Subject, read: SchedulerConfig, config: Config, *, legacy: bool
) -> None:
    names = [profile.scheduler_name for profile in read.profiles]
    if not any(name in config.scheduler_names for name in names):
        known = ", ".join(sorted(config.scheduler_names))
        shown = ", ".join(name for name in names if name) or "none"
        subject.found(
            "VS115", "profiles", f"profiles: {shown[:200]}; the service binds for: {known}"
        )
    if legacy:
        return
    own = [
        name for name in names if name in config.scheduler_names and name != DEFAULT_SCHEDULER_NAME
    ]
    for index, profile in enumerate(read.profiles):
        percentage = profile.percentage_of_nodes_to_score
        effective = read.percentage_of_nodes_to_score if percentage is None else percentage
        asked = profile.scheduler_name in (own or config.scheduler_names)
        if asked and effective != 100:
            said = "not set" if percentage is None and not effective else f"{effective}"
            subject.found(
                "VS109",
                f"profiles[{index}].percentageOfNodesToScore",
                f"{said} in profile {profile.scheduler_name!r:.80}",
            )


def _check_lease(subject: Subject, read: SchedulerConfig, config: Config) -> None:
    """Check that kube-scheduler's Lease is neither the service's nor that of the cluster's own
    kube-scheduler.
    """
    election: Json = mapping(subject.raw, "leaderElection")
    if election.get("leaderElect") is False:
        return
    lease = (
        text(election, "resourceNamespace") or _SCHEDULER_LEASE[0],
        text(election, "resourceName") or _SCHEDULER_LEASE[1],
    )
    ours = (config.leader_election.resource_namespace, config.leader_election.resource_name)
    if lease == ours:
        subject.found("VS122", "leaderElection", f"Lease {'/'.join(lease)} is the service's own")
    beside = all(profile.scheduler_name != DEFAULT_SCHEDULER_NAME for profile in read.profiles)
    if beside and lease == _SCHEDULER_LEASE:
        subject.found(
            "VS122",
            "leaderElection",
            f"Lease {'/'.join(lease)} is that of the cluster's own kube-scheduler",
        )
