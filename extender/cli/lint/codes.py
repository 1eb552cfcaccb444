"""Every finding of ``vreplica config check``: its code, its severity, the consequence and the fix.

A code never gets another meaning. A finding that no longer occurs is removed, and a new one gets a
new code. The table in docs/configuration.md is made from ``CODES``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from extender.config.document import NOWHERE, Place


class Severity(StrEnum):
    """How severe a finding is."""

    ERROR = "error"
    """It does not work, or is not safe."""
    WARNING = "warning"
    """It works, but mostly not as intended."""


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding. ``happens``: the consequence. ``fix``: what to do."""

    code: str
    severity: Severity
    happens: str
    fix: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: ``message`` is about ``field`` in ``file`` at ``place``."""

    code: Code
    file: str
    field: str
    message: str
    place: Place = NOWHERE

    @property
    def is_error(self) -> bool:
        """Whether it is an error."""
        return self.code.severity is Severity.ERROR


_E, _W = Severity.ERROR, Severity.WARNING
_ALL: Final = (
    # The files themselves, and our own configuration.
    Code(
        "VS001",
        _E,
        "The file cannot be read, or is none that can be checked.",
        "Give a VReplicaSchedulerConfiguration, KubeSchedulerConfiguration, Policy or webhook "
        "configuration.",
    ),
    Code(
        "VS002",
        _E,
        "The service and the webhook refuse the file and do not start; running ones keep their old "
        "settings.",
        "Correct the field; docs/configuration.md lists all of them.",
    ),
    Code(
        "VS003",
        _E,
        "A profile does not read, so the service refuses the whole file.",
        "Correct the profile; see docs/profiles.md.",
    ),
    Code(
        "VS004",
        _W,
        "Whoever reaches that address may bind pods.",
        "Set server.tls with clientCAFile and allowedClients, and leave insecure out.",
    ),
    Code(
        "VS005",
        _W,
        "Every replica leads: with two of them, both place and both move.",
        "Leave leaderElect out, or run one replica only.",
    ),
    # kube-scheduler's files.
    Code("VS100", _E, "kube-scheduler refuses the file and does not start.", "Correct the field."),
    Code(
        "VS101",
        _E,
        "No extender of the file is asked about adapter pods, so they are bound without their "
        "vreplicas.",
        "Add the extenders: part of manifests/kube-scheduler/config.yaml.",
    ),
    Code(
        "VS102",
        _E,
        "While the extender is away, pods are bound without their vreplicas, and nothing counts "
        "slots.",
        "Set ignorable: false: with a bind verb a pod must wait.",
    ),
    Code(
        "VS103",
        _E,
        "kube-scheduler does not verify whom it sends pods to: anybody in between decides where "
        "they go.",
        "Set tlsConfig.caFile and serverName, and insecure: false.",
    ),
    Code(
        "VS104",
        _E,
        "The extender is asked about every pod of a kube-scheduler that others share: while it is "
        "away, none of them is placed.",
        "Set managedResources: [{name: vreplica.dev/slots, ignoredByScheduler: true}], and "
        "slotsResource: true for the webhook.",
    ),
    Code(
        "VS105",
        _W,
        "kube-scheduler counts the resource: pods that request more than 0 of it find room only on "
        "nodes that declare it.",
        "Set ignoredByScheduler: true, unless every node declares vreplica.dev/slots and the "
        "webhook runs with --slots-counted.",
    ),
    Code(
        "VS106",
        _E,
        "kube-scheduler gives up before the extender answers; a bind that is then done counts as "
        "failed.",
        "Make httpTimeout longer than server.deadlineSeconds: 5s for the default of 4.",
    ),
    Code(
        "VS107",
        _E,
        "A Policy's httpTimeout is in nanoseconds: no request can be answered in that time.",
        "Write 5000000000 for five seconds.",
    ),
    Code(
        "VS108",
        _W,
        "Nodes that come back whole count as empty when kube-scheduler scores them "
        "(kubernetes#141781, 1.34 to 1.37 at least): "
        "pods pile up on full nodes. Each request also carries megabytes in a large cluster.",
        "Set nodeCacheCapable: true; the extender knows the nodes itself.",
    ),
    Code(
        "VS109",
        _W,
        "Extenders see a sample of the nodes that fit: the right zone may not be among them.",
        "Set percentageOfNodesToScore: 100 in the profile of the adapter pods.",
    ),
    Code(
        "VS110", _E, "kube-scheduler refuses a prioritizeVerb without a weight.", "Set weight: 5."
    ),
    Code(
        "VS111",
        _E,
        "Requests go to a path that the extender does not serve, and every pod waits.",
        "Set urlPrefix: SCHEME://HOST:PORT/v1.",
    ),
    Code(
        "VS112",
        _E,
        "kube-scheduler refuses two extenders with a bindVerb.",
        "Leave the bindVerb to this one.",
    ),
    Code(
        "VS113",
        _E,
        "enableHTTPS does not change an http:// prefix: bind goes over plain HTTP.",
        "Write https:// in urlPrefix.",
    ),
    Code(
        "VS114",
        _E,
        "The extender does not serve that verb, and every pod waits.",
        "The verbs are filter, prioritize, bind and preempt.",
    ),
    Code(
        "VS115",
        _E,
        "The service refuses to bind the pods of these profiles (OtherScheduler), or none of "
        "adapter pods comes here.",
        "Name the profile in schedulerNames and for the webhook (--scheduler-name).",
    ),
    Code(
        "VS116",
        _E,
        "The service refuses connections without a client certificate.",
        "Set tlsConfig.certFile and keyFile.",
    ),
    Code(
        "VS117",
        _E,
        "Anybody on the way reads and changes what is bound; the service listens beyond loopback "
        "only with TLS.",
        "Use manifests/kube-scheduler/config-https.yaml, or run kube-scheduler in the extender's "
        "pod.",
    ),
    Code(
        "VS118",
        _E,
        "kube-scheduler calls an address where the service does not listen.",
        "Make urlPrefix and server.host, port and tls go together.",
    ),
    Code(
        "VS119",
        _E,
        "A verb that this needs is not called: without filter slots are not counted, without bind "
        "no ledger is written.",
        "Set filterVerb: filter and bindVerb: bind.",
    ),
    Code(
        "VS120",
        _W,
        "Preemption does not know which vreplicas its victims carry.",
        "Set preemptVerb: preempt.",
    ),
    Code(
        "VS121",
        _W,
        "Nodes and zones are not scored for the tenants' availability.",
        "Set prioritizeVerb: prioritize and weight: 5, or filter.narrowTo in the service's "
        "configuration.",
    ),
    Code(
        "VS122",
        _E,
        "Two programs renew one Lease: one of them never leads.",
        "Give kube-scheduler a resourceName of its own, such as vreplica-kube-scheduler.",
    ),
    Code(
        "VS123",
        _W,
        "A kube-scheduler that is built without that plugin refuses the file.",
        "Correct the name, if it is none of a plugin of your own.",
    ),
    Code(
        "VS124",
        _E,
        "The extender is asked about pods that request the resource, and the webhook stamps it on "
        "none.",
        "Leave managedResources out for a kube-scheduler of your own; set slotsResource: true for "
        "one that others share.",
    ),
    Code(
        "VS125",
        _W,
        "Adapter pods are marked for a kube-scheduler that asks about marked pods only; this one "
        "asks about every pod that names it.",
        "Set slotsResource: false; or managedResources, where others share the kube-scheduler.",
    ),
    # Webhook registrations.
    Code(
        "VS200",
        _E,
        "No webhook of the registration is asked to stamp adapter pods: they go to the default "
        "scheduler.",
        "Install it as the rest was: helm upgrade, or kubectl apply of "
        "manifests/base/webhook-configurations.yaml.",
    ),
    Code(
        "VS201",
        _E,
        "While the webhook is down nothing can be created there; in kube-system or our own "
        "namespace that may never end.",
        "Set an objectSelector on the label vreplica.dev/pool, and failurePolicy: Ignore.",
    ),
    Code(
        "VS202",
        _W,
        "Objects that are not ours wait for the webhook, up to its timeout while it is down.",
        "Set an objectSelector: the label vreplica.dev/pool Exists.",
    ),
    Code(
        "VS203",
        _W,
        "Adapter pods cannot be created while the webhook is down.",
        "Set failurePolicy: Ignore; what slips through is repaired by the service.",
    ),
    Code(
        "VS204",
        _W,
        "While the webhook is out of reach every request waits that long.",
        "Set timeoutSeconds: 3.",
    ),
    Code(
        "VS205",
        _W,
        "What a later webhook changes in the pod is not looked at again.",
        "Set reinvocationPolicy: IfNeeded.",
    ),
    Code(
        "VS206",
        _E,
        "The webhook does not serve that path: every call fails.",
        "Use path /mutate or /validate.",
    ),
    Code("VS207", _E, "The API server refuses the registration.", "Correct the field."),
    Code(
        "VS208",
        _E,
        "The webhook is not called when pods are created.",
        'Add a rule: resources [pods], operations [CREATE], apiGroups [""].',
    ),
    Code(
        "VS209",
        _E,
        "The API server cannot verify the webhook: every call fails.",
        "Leave caBundle out, the webhook writes it, or give PEM certificates in base64.",
    ),
    Code(
        "VS210",
        _E,
        "The webhook is called for no adapter pod: all of them go to the default scheduler.",
        "Set an objectSelector: the label vreplica.dev/pool Exists.",
    ),
    Code(
        "VS211",
        _W,
        "Adapter pods that do not meet this are not stamped, and go to the default scheduler.",
        "Leave it out, or see to it that all pools' pods and namespaces meet it; vreplica doctor "
        "looks at those that there are.",
    ),
)

CODES: Final[Mapping[str, Code]] = MappingProxyType({one.code: one for one in _ALL})
"""Code -> its meaning."""
