"""Every finding of ``vreplica config check``: its code, its severity, the consequence and the fix.

A code never gets another meaning. A finding that no longer occurs is removed, and a new one gets a
new code. The table in docs/configuration.md is made from ``CODES``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from extender.config.document import NOWHERE, Document, Place
from extender.model.reading import Json, text


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
        "The file cannot be read, or it holds none of the kinds that are checked.",
        "Pass a VReplicaSchedulerConfiguration, KubeSchedulerConfiguration, Policy or webhook "
        "configuration.",
    ),
    Code(
        "VS002",
        _E,
        "The service and the webhook refuse the file and do not start. If they are running, they "
        "keep their old settings.",
        "Correct the field. docs/configuration.md lists all fields.",
    ),
    Code(
        "VS003",
        _E,
        "A profile cannot be read, so the service refuses the whole file.",
        "Correct the profile. See docs/profiles.md.",
    ),
    Code(
        "VS004",
        _W,
        "Anybody who can reach that address can bind pods.",
        "Set server.tls with clientCAFile and allowedClients, and remove insecure.",
    ),
    Code(
        "VS005",
        _W,
        "Every replica leads. If there are two, both place and both move vreplicas.",
        "Remove leaderElect, or run only one replica.",
    ),
    # kube-scheduler's files.
    Code("VS100", _E, "kube-scheduler refuses the file and does not start.", "Correct the field."),
    Code(
        "VS101",
        _E,
        "kube-scheduler asks no extender about adapter pods, so it binds them without their "
        "vreplicas.",
        "Add the extenders of manifests/kube-scheduler/config.yaml.",
    ),
    Code(
        "VS102",
        _E,
        "While the extender is down, kube-scheduler binds pods without their vreplicas, and "
        "nothing counts slots.",
        "Set ignorable: false. With a bind verb, a pod must wait for the extender.",
    ),
    Code(
        "VS103",
        _E,
        "kube-scheduler does not verify the server that it sends pods to. Anybody in between can "
        "decide where they go.",
        "Set tlsConfig.caFile and serverName, and insecure: false.",
    ),
    Code(
        "VS104",
        _E,
        "This kube-scheduler places other pods too, and asks the extender about all of them. "
        "While the extender is down, none of them is placed.",
        "Set managedResources: [{name: vreplica.dev/slots, ignoredByScheduler: true}], and "
        "slotsResource: true for the webhook.",
    ),
    Code(
        "VS105",
        _W,
        "kube-scheduler counts the resource. A pod that requests more than 0 of it fits only on "
        "nodes that declare it.",
        "Set ignoredByScheduler: true, unless every node declares vreplica.dev/slots and the "
        "webhook runs with --slots-counted.",
    ),
    Code(
        "VS106",
        _E,
        "kube-scheduler gives up before the extender answers. A bind that succeeds after that "
        "counts as failed.",
        "Make httpTimeout longer than server.deadlineSeconds. For the default of 4, set 5s.",
    ),
    Code(
        "VS107",
        _E,
        "A Policy's httpTimeout is in nanoseconds. No request can be answered in that time.",
        "Write 5000000000 for five seconds.",
    ),
    Code(
        "VS108",
        _W,
        "If the extender returns whole nodes, kube-scheduler scores them as empty "
        "(kubernetes#141781, at least 1.34 to 1.37), so pods pile up on full nodes. In a large "
        "cluster, each request also carries megabytes.",
        "Set nodeCacheCapable: true. The extender has a cache of nodes.",
    ),
    Code(
        "VS109",
        _W,
        "The extender sees only a sample of the nodes that fit. The right zone may not be among "
        "them.",
        "Set percentageOfNodesToScore: 100 in the profile of the adapter pods.",
    ),
    Code(
        "VS110", _E, "kube-scheduler refuses a prioritizeVerb without a weight.", "Set weight: 5."
    ),
    Code(
        "VS111",
        _E,
        "kube-scheduler calls a path that the extender does not serve, and every pod waits.",
        "Set urlPrefix: SCHEME://HOST:PORT/v1.",
    ),
    Code(
        "VS112",
        _E,
        "kube-scheduler refuses two extenders with a bindVerb.",
        "Remove the bindVerb of the other extender.",
    ),
    Code(
        "VS113",
        _E,
        "enableHTTPS does not change an http:// prefix, so bind goes over plain HTTP.",
        "Write https:// in urlPrefix.",
    ),
    Code(
        "VS114",
        _E,
        "The extender does not serve that verb, and every pod waits.",
        "Use the verbs filter, prioritize, bind and preempt.",
    ),
    Code(
        "VS115",
        _E,
        "The service refuses to bind the pods of these profiles (OtherScheduler), or no adapter "
        "pod comes to this kube-scheduler.",
        "Name the profile in schedulerNames, and pass it to the webhook with --scheduler-name.",
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
        "Anybody on the network path can read and change what is bound. Beyond loopback, the "
        "service listens only with TLS.",
        "Use manifests/kube-scheduler/config-https.yaml, or run kube-scheduler in the extender's "
        "pod.",
    ),
    Code(
        "VS118",
        _E,
        "kube-scheduler calls an address where the service does not listen.",
        "Make urlPrefix match server.host, server.port and server.tls.",
    ),
    Code(
        "VS119",
        _E,
        "kube-scheduler does not call a verb that is needed. Without filter, nothing counts "
        "slots. Without bind, nobody writes the ledger.",
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
        "Set prioritizeVerb: prioritize and weight: 5, or set filter.narrowTo in the service's "
        "configuration.",
    ),
    Code(
        "VS122",
        _E,
        "Two programs use the same Lease, so one of them never leads.",
        "Give kube-scheduler a resourceName of its own, such as vreplica-kube-scheduler.",
    ),
    Code(
        "VS123",
        _W,
        "A kube-scheduler that is built without this plugin refuses the file.",
        "Correct the name, unless it is a plugin of your own.",
    ),
    Code(
        "VS124",
        _E,
        "kube-scheduler asks the extender only about pods that request the resource, but the "
        "webhook adds it to no pod.",
        "If only adapter pods use this kube-scheduler, remove managedResources. If it places "
        "other pods too, set slotsResource: true.",
    ),
    Code(
        "VS125",
        _W,
        "The webhook marks adapter pods for a kube-scheduler that asks only about marked pods. "
        "This one asks about every pod that names it.",
        "Set slotsResource: false. If this kube-scheduler places other pods too, set "
        "managedResources instead.",
    ),
    # Webhook registrations.
    Code(
        "VS200",
        _E,
        "No webhook in the registration stamps adapter pods, so they go to the default scheduler.",
        "Install it in the same way as the rest: helm upgrade, or kubectl apply of "
        "manifests/base/webhook-configurations.yaml.",
    ),
    Code(
        "VS201",
        _E,
        "While the webhook is down, no pod can be created there. In kube-system or the webhook's "
        "own namespace, this can keep the webhook down.",
        "Set an objectSelector on the label vreplica.dev/pool, and failurePolicy: Ignore.",
    ),
    Code(
        "VS202",
        _W,
        "Pods that are no adapters wait for the webhook. While it is down, they wait until its "
        "timeout.",
        "Set an objectSelector: the label vreplica.dev/pool Exists.",
    ),
    Code(
        "VS203",
        _W,
        "Adapter pods cannot be created while the webhook is down.",
        "Set failurePolicy: Ignore. The service repairs pods that were not stamped.",
    ),
    Code(
        "VS204",
        _W,
        "While the webhook cannot be reached, every request waits for that long.",
        "Set timeoutSeconds: 3.",
    ),
    Code(
        "VS205",
        _W,
        "If a later webhook changes the pod, this webhook does not look at it again.",
        "Set reinvocationPolicy: IfNeeded.",
    ),
    Code(
        "VS206",
        _E,
        "The webhook does not answer such requests at that path, so every call fails.",
        "Use the path that the message names.",
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
        "The API server cannot verify the webhook, so every call fails.",
        "Remove caBundle, and the webhook fills it in, or set PEM certificates in base64.",
    ),
    Code(
        "VS210",
        _E,
        "The webhook is called for no adapter pod, so all of them go to the default scheduler.",
        "Set an objectSelector: the label vreplica.dev/pool Exists.",
    ),
    Code(
        "VS211",
        _W,
        "Adapter pods that do not meet this condition are not stamped, and go to the default "
        "scheduler.",
        "Remove the condition, or make sure that the pods and namespaces of all pools meet it. "
        "vreplica doctor checks those that exist.",
    ),
)

CODES: Final[Mapping[str, Code]] = MappingProxyType({one.code: one for one in _ALL})
"""Code -> its meaning."""


@dataclass(slots=True)
class Subject:
    """An object of ``document`` at ``prefix`` ("" or ``items[0]``), and the findings in it."""

    document: Document
    raw: Json
    prefix: str = ""
    findings: list[Finding] = field(default_factory=list)

    def found(self, code: str, path: str, message: str) -> None:
        """Add a finding at a field of the object."""
        where = f"{self.prefix}.{path}" if self.prefix and path else self.prefix or path
        place = self.document.place(where)
        self.findings.append(Finding(CODES[code], self.document.subject, where, message, place))

    @property
    def kind(self) -> str:
        """Its kind; "" if it has none."""
        return text(self.raw, "kind")
