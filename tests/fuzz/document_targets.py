"""Texts and documents: ledgers, quantities, configuration, profiles, Knative's ConfigMaps,
kube-scheduler's files.

Promises: whatever is no document is refused with the one error that the reader documents; what is
accepted can be used.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

import orjson
import yaml

import extender.config.profiles
from extender.config.kube_scheduler_file import (
    InvalidConfiguration,
    read_configuration,
    read_policy,
)
from extender.config.plugins import load_entry_points
from extender.config.profiles import load_profiles
from extender.engine.policy.knative_configmap import knative_document
from extender.engine.policy.profile_document import profile_from
from extender.engine.state.cluster_state import ClusterState
from extender.lab.scheduler.quantities import NANO, nanos
from extender.model.errors import InvalidObject, LedgerTooLarge, LedgerUnreadable
from extender.model.ledger import decode_ledger, encode_ledger, ledger_slots
from extender.model.quantity import QUANTITY_MAX, quantity
from tests.fuzz.findings import Broken, general, outcome_of
from tests.fuzz.target import Target, any_json
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.configs import config_from
from tests.support.placing import place

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"


class LedgerTarget(Target):
    """The placements annotation: the text that a person or a stranger may have written."""

    name = "ledger"

    async def open(self) -> None:
        """See Target."""
        self.seeds = [
            b"{}",
            b'{"tenant/a":3}',
            b'{"tenant/a":3,"tenant/b":[2,4],"t/c@broker.x.dev":1}',
            b'{"tenant/a":0,"b":[0,1]}',
        ]

    async def run(self, data: bytes) -> str:
        """See Target."""
        # As an annotation it comes out of JSON, so it is text; from a file it may hold lone
        # surrogates too.
        text = data.decode("utf-8", "surrogateescape" if data[:1] == b"{" else "replace")
        try:
            ledger = decode_ledger(text)
        except LedgerUnreadable as error:
            return outcome_of(error)
        try:
            written = encode_ledger(ledger)
        except LedgerTooLarge as error:
            raise Broken("a ledger that was read cannot be written") from error
        again = decode_ledger(written)
        if dict(again) != dict(ledger) or encode_ledger(again) != written:
            raise Broken(f"a ledger does not survive: {written[:200]}")
        if ledger_slots(ledger) < 0 or any(
            share.vreplicas <= 0 or share.weight <= 0 for share in ledger.values()
        ):
            raise Broken("a ledger with shares that are none")
        return (
            f"read {min(len(ledger), 4)} {any(share.weight > 1 for share in ledger.values())} "
            f"{written == text}"
        )


class QuantityTarget(Target):
    """Resource quantities, against the embedded cluster's own reading of them."""

    name = "quantity"
    structural = 0.0

    async def open(self) -> None:
        """See Target."""
        self.seeds = [
            b"20",
            b"1k",
            b"1Ki",
            b"1e3",
            b"2000m",
            b"1.5",
            b"+1.50E+2",
            b".5Mi",
            b"9223372036854775807",
            b"1E",
            b"1Ei",
            b"0",
        ]
        self.words = (
            "m",
            "n",
            "u",
            "k",
            "Ki",
            "E",
            "Ei",
            "e",
            "e-3",
            "E+9",
            ".",
            "+",
            "-",
            "000",
            "999999999999",
            "٣",
            "_",
        )

    async def run(self, data: bytes) -> str:
        """See Target."""
        text = data.decode("utf-8", "replace")
        found = quantity(text)
        if found is None:
            return f"none {general(text)[:3]}"
        if type(found) is not int or not 0 <= found <= QUANTITY_MAX:
            raise Broken(f"{text!r:.80} is {found!r:.80}")
        other = nanos(text)
        if len(text) < 30 and found < QUANTITY_MAX and other != found * NANO:
            raise Broken(f"{text!r:.80} is {found}, and elsewhere {other} nano")
        return f"some {general(text)[:3]}"


class JsonTarget(Target):
    """Readers of a document that is a mapping already: no parser in the way, so they are asked
    most.
    """

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            document = any_json(data)
        except ValueError:
            return "no JSON"
        try:
            return self.read(document)
        except (InvalidObject, InvalidConfiguration) as error:
            return outcome_of(error)

    def read(self, document: object) -> str:
        """Read it; InvalidObject and InvalidConfiguration are the caller's."""
        raise NotImplementedError


CONFIG: Final[Mapping[str, Any]] = {
    "apiVersion": "config.vreplica.dev/v1alpha1",
    "kind": "VReplicaSchedulerConfiguration",
    "server": {
        "host": "127.0.0.1",
        "port": 10261,
        "deadlineSeconds": 4,
        "tls": {"certFile": "a", "keyFile": "b", "clientCAFile": "c"},
    },
    "leaderElection": {
        "leaderElect": True,
        "resourceNamespace": "vreplica-system",
        "resourceName": "vreplica-scheduler",
        "leaseDurationSeconds": 15,
        "renewDeadlineSeconds": 10,
        "retryPeriodSeconds": 2,
    },
    "clientConnection": {"kubeconfig": "", "context": "", "qps": 200, "burst": 400},
    "mode": "active",
    "profiles": [],
}
PROFILE: Final[Mapping[str, Any]] = {
    "name": "three-zones",
    "ties": "RoundRobin",
    "filters": [{"name": "ZoneSpread", "args": {"MaxSkew": 1}}, {"name": "PodFitsResources"}],
    "scores": [
        {"name": "NodeSpread", "weight": 10},
        {"name": "LowestOrdinalPriority"},
        {"name": "AvailabilityZonePriority", "weight": 5, "args": '{"MaxSkew": 2}'},
    ],
    "deschedulers": [
        {"name": "ZoneSpread", "weight": 10},
        {"name": "RemoveWithHighestOrdinalPriority", "weight": 0},
    ],
    "descheduleFilters": [],
    "rules": {"keepOnUnavailable": True},
}
SCHEDULER_MAP: Final[Mapping[str, Any]] = {
    "kind": "ConfigMap",
    "metadata": {"name": "config-kafka-scheduler"},
    "data": {
        "predicates": '[{"Name": "PodFitsResources"}, {"Name": "NoMaxResourceCount", "Args": '
        '"{\\"NumPartitions\\": 100}"}, '
        '{"Name": "EvenPodSpread", "Args": "{\\"MaxSkew\\": 2}"}]',
        "priorities": '[{"Name": "AvailabilityZonePriority", "Weight": 10, "Args": '
        '"{\\"MaxSkew\\": 2}"}, '
        '{"Name": "LowestOrdinalPriority", "Weight": 2}]',
        "_example": "x",
    },
}
DESCHEDULER_MAP: Final[Mapping[str, Any]] = {
    "kind": "ConfigMap",
    "metadata": {"name": "config-kafka-descheduler"},
    "data": {
        "predicates": "[]",
        "priorities": [
            {"Name": "RemoveWithEvenPodSpreadPriority", "Weight": 10, "Args": '{"MaxSkew": 2}'}
        ],
    },
}


def cached_entry_points() -> Any:
    """Installed packages are looked through once, and not for each input."""
    return mock.patch.object(
        extender.config.profiles, "load_entry_points", functools.cache(load_entry_points)
    )


class ConfigTarget(JsonTarget):
    """``VReplicaSchedulerConfiguration``, already parsed, with its profiles."""

    name = "config"

    async def open(self) -> None:
        """See Target."""
        self.seeds = [
            orjson.dumps(CONFIG),
            orjson.dumps({**CONFIG, "profiles": [PROFILE, {"name": "b"}], "mode": "shadow"}),
        ]
        self.words = ("default", "ha", "spread", "localhost", "::1", "0.0.0.0", "knativeConfigMaps")
        self._entry_points = cached_entry_points()
        self._entry_points.start()

    async def close(self) -> None:
        """See Target."""
        self._entry_points.stop()

    def read(self, document: object) -> str:
        """See JsonTarget."""
        config = config_from(document, "config.yaml")
        repr(config)
        profiles = load_profiles(config, "/nonexistent/config.yaml")
        return f"read {config.mode} {len(profiles)}"


class ProfileTarget(JsonTarget):
    """Profiles: one that is accepted must be able to place, grow, shrink and re-place."""

    name = "profile"

    async def open(self) -> None:
        """See Target."""
        self.seeds = [orjson.dumps(PROFILE), *map(orjson.dumps, _shipped_profiles())]

    def read(self, document: object) -> str:
        """See JsonTarget."""
        if not isinstance(document, Mapping):
            return "no mapping"
        profile = profile_from(document)
        use(profile)
        parts = (profile.filters, profile.scores, profile.deschedulers, profile.deschedule_filters)
        return f"read {[min(len(part), 2) for part in parts]} {profile.ties}"


def use(profile: Any) -> None:
    """Decide by a profile."""
    state = ClusterState({profile.name: profile})
    for index in range(3):
        state.node_changed(None, a_node(f"node-{index}", f"z{index % 2}"))
    state.stateful_set_changed(None, a_stateful_set(3))
    state.adapter_pool_changed(None, a_pool(5, profile=profile.name))
    for ordinal in range(3):
        ledger = {"tenant/a": 2} if ordinal == 1 else {}
        state.pod_changed(None, a_pod(ordinal, ledger, node=f"node-{ordinal}"))
    for vreplicas, placed in ((4, {1: 2}), (1, {1: 2}), (2, {1: 2}), (20, {1: 2})):
        decision = place(state.pool(POOL), a_vpod("a", vreplicas, placed), allowed=True)
        if sum(decision.target.values()) + decision.pending < vreplicas:
            raise Broken(
                f"{vreplicas} vreplicas, but {dict(decision.target)} and {decision.pending} left"
            )


class KnativeTarget(JsonTarget):
    """Knative's ConfigMaps: a document that comes out of them must be one that ``profile_from``
    reads.
    """

    name = "knative"

    async def open(self) -> None:
        """See Target."""
        both = {"scheduler": SCHEDULER_MAP, "descheduler": DESCHEDULER_MAP, "ignoreUnknown": False}
        self.seeds = [
            orjson.dumps(both),
            orjson.dumps({**both, "ignoreUnknown": True}),
            orjson.dumps({"scheduler": SCHEDULER_MAP}),
        ]

    def read(self, document: object) -> str:
        """See JsonTarget."""
        scheduler = document.get("scheduler") if isinstance(document, Mapping) else None
        descheduler = document.get("descheduler") if isinstance(document, Mapping) else None
        if not isinstance(document, Mapping) or not isinstance(scheduler, Mapping):
            return "no mapping"
        ignore = document.get("ignoreUnknown") is True
        made = knative_document(
            "k",
            scheduler,
            descheduler if isinstance(descheduler, Mapping) else None,
            ignore_unknown=ignore,
        )
        try:
            profile = profile_from(made)
        except InvalidObject as error:
            raise Broken(f"what was imported is refused: {error}") from error
        use(profile)
        return f"read {len(profile.filters)} {len(profile.scores)} {len(profile.deschedulers)}"


class SchedulerConfigTarget(JsonTarget):
    """KubeSchedulerConfiguration and Policy, as ``vreplica config check`` reads them."""

    name = "scheduler-config"

    async def open(self) -> None:
        """See Target."""
        folder = MANIFESTS / "kube-scheduler"
        documents = [
            yaml.safe_load((folder / name).read_text())
            for name in ("config.yaml", "config-https.yaml", "config-narrow.yaml", "policy.json")
        ]
        self.seeds = [orjson.dumps(document) for document in documents]
        self.words = (
            "insecure",
            "certData",
            "caData",
            "ignorable",
            "5s",
            "1h1m",
            "-1s",
            "5000000000",
            "preemptVerb",
        )

    def read(self, document: object) -> str:
        """See JsonTarget."""
        if not isinstance(document, Mapping):
            return "no mapping"
        config, errors = (
            read_policy(document)
            if document.get("kind") == "Policy"
            else read_configuration(document)
        )
        if errors:
            raise InvalidConfiguration(errors)
        return f"read {len(config.extenders)} {len(config.profiles)}"


def _shipped_profiles() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for path in (MANIFESTS / "examples" / "profiles").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            found += [one for one in (document or {}).get("profiles", []) if isinstance(one, dict)]
    return found
