"""The extender's endpoints: filter, prioritize, preempt, bind (with a stand-in API), schedule and
the query of /state.json.

kube-scheduler's own rules are the promises: a reply is JSON in its names, names no node that was
not asked about, and scores from 0 to 10. Requests that fail leave the state as it was.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

import orjson
from yarl import URL

from extender.engine.placing.plan import Decision
from extender.engine.state.ordinal_history import OrdinalHistory
from extender.model.errors import WireError
from extender.model.objects import VPod
from extender.service.http.describe import StateQuery, state_steps
from extender.service.http.schedule import ScheduleVerb
from extender.service.placing.placer import NotCommitted
from extender.service.watching.caches import Caches
from extender.service.watching.informers import Informers
from tests.fuzz.extender_scene import VerbTarget
from tests.fuzz.findings import Broken, general, outcome_of
from tests.fuzz.target import in_any_case, recorded
from tests.support.builders import NS, POOL, nothing_decided
from tests.support.placing import place
from tests.support.service import bind_args, filter_args
from tests.support.steps import result_of

VERB_STATUSES: Final = frozenset({400, 413})


class FilterTarget(VerbTarget):
    """``/v1/filter`` and ``/v1/prioritize``."""

    def make_seeds(self) -> None:
        """See VerbTarget."""
        names = [node["metadata"]["name"] for node in self.node_objects]
        bound = {**self.pending, "spec": {**self.pending["spec"], "nodeName": "node-1"}}
        plain = {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {}}}
        self.seeds = [
            filter_args(self.pending, names),
            filter_args(self.pending, [*names, "node-9"]),
            filter_args(self.pending, self.node_objects, full=True),
            filter_args(bound, names),
            filter_args(plain, names),
            filter_args(plain, self.node_objects[:1], full=True),
            orjson.dumps({"pod": self.pending, "nodenames": names}),
            *recorded(f"{self.name}-1", f"{self.name}-full-1", f"{self.name}-legacy-1.22"),
        ]

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            reply, status = (self.verbs.filter if self.name == "filter" else self.verbs.prioritize)(
                data
            )
        except WireError as error:
            return _wire_outcome(error)
        asked = _asked(data)
        if self.name == "filter":
            return f"200 {status} {_check_filter(orjson.loads(reply), asked)}"
        scores = orjson.loads(reply)
        if not isinstance(scores, list) or any(
            item.keys() != {"Host", "Score"}
            or item["Host"] not in asked
            or type(item["Score"]) is not int
            for item in scores
        ):
            raise Broken(f"no HostPriorityList of the nodes asked about: {reply[:200]!r}")
        if any(not 0 <= item["Score"] <= 10 for item in scores) or len(
            {item["Host"] for item in scores}
        ) != len(scores):
            raise Broken(f"wrong scores: {reply[:200]!r}")
        return f"200 {status} {sorted({item['Score'] for item in scores})} {min(len(asked), 4)}"


class PreemptTarget(VerbTarget):
    """``/v1/preempt``."""

    def make_seeds(self) -> None:
        """See VerbTarget."""
        uids = {pod["spec"].get("nodeName", ""): pod for pod in self.api.pods.values()}
        meta = {
            node: {"Pods": [{"UID": uids[node]["metadata"]["uid"]}], "NumPDBViolations": 1}
            for node in ("node-0", "node-1")
        }
        whole = {
            node: {"Pods": [uids[node]], "NumPDBViolations": 0} for node in ("node-0", "node-1")
        }
        self.seeds = [
            orjson.dumps(
                {"Pod": self.pending, "NodeNameToMetaVictims": {**meta, "node-2": {"Pods": []}}}
            ),
            orjson.dumps({"Pod": self.pending, "NodeNameToVictims": whole}),
            *recorded("preempt-meta-1", "preempt-full-1"),
        ]

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            reply, status = self.verbs.preempt(data)
        except WireError as error:
            return _wire_outcome(error)
        result = orjson.loads(reply)
        proposed = _proposed(data)
        if result.keys() != {"NodeNameToMetaVictims"}:
            raise Broken(f"no ExtenderPreemptionResult: {reply[:200]!r}")
        for node, victims in result["NodeNameToMetaVictims"].items():
            uids = [pod["UID"] for pod in victims["Pods"]]
            if (
                not uids
                or node not in proposed
                or not set(uids) <= proposed[node]
                or victims["NumPDBViolations"] < 0
            ):
                raise Broken(f"node {node!r} with victims {uids[:3]} was not proposed so")
        return (
            f"200 {status} {min(len(result['NodeNameToMetaVictims']), 3)} of "
            f"{min(len(proposed), 3)}"
        )


class BindTarget(VerbTarget):
    """``/v1/bind``: the stand-in API takes one Binding in turn, refuses another, loses the answer
    of the next.
    """

    def make_seeds(self) -> None:
        """See VerbTarget."""
        bound = self.api.pods[f"{NS}/dispatcher-1"]
        self.seeds = [
            bind_args(self.pending, "node-2"),
            bind_args(self.pending, "node-9"),
            bind_args(bound, "node-0"),
            bind_args(bound, "node-1"),
            *recorded("bind-1"),
        ]

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.binder.taken.clear()
        try:
            reply, status = await self.verbs.bind(data)
        except WireError as error:
            return _wire_outcome(error)
        finally:
            # What was bound is not: the next input meets the pod unbound again.
            for assumed in self.binder.taken:
                self.binder.revert(assumed)
        result = orjson.loads(reply)
        if (
            result.keys() != {"Error"}
            or not isinstance(result["Error"], str)
            or (result["Error"] == "") != (status == "Success")
        ):
            raise Broken(f"no ExtenderBindingResult: {reply[:200]!r}")
        return f"200 {status} {general(result['Error'].partition(':')[0])}"


class Leads:
    """We lead every pool."""

    def leads(self, pool: str) -> bool:
        return bool(pool)

    acts = leads

    def leader(self, pool: str) -> str:
        return f"who leads {pool}"


class _Placer:
    """Decides as the placer does, on the state as it is; nothing is reserved. Every fifth decision
    cannot be written.
    """

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._turn = 0

    async def schedule(self, vpod: VPod) -> Decision:
        self._turn += 1
        if not self._turn % 5:
            raise NotCommitted("the ledger of dispatcher-1 has changed")
        state = self._caches.state
        pool = state.pool(vpod.pool)
        return place(
            pool,
            vpod,
            allowed=pool.adapter_pool is None or state.allows(pool.adapter_pool, vpod.namespace),
        )


def schedule_verb(target: VerbTarget) -> ScheduleVerb:
    """``/v1/schedule`` over the caches of a target, of which we lead every pool."""
    ordinal_history = OrdinalHistory(asyncio.get_running_loop().time)
    sources = Informers(
        target.api, target.caches, rng=random.Random(1), ordinal_history=ordinal_history
    ).sources
    return ScheduleVerb(target.caches, _Placer(target.caches), sources, leadership=Leads())


def schedule_args() -> bytes:
    """A good request to place."""
    vpod = {"namespace": "tenant", "name": "b", "kind": "Broker", "group": "x.dev", "vreplicas": 8}
    return orjson.dumps({"vpod": vpod, "pool": {"namespace": NS, "name": "dispatcher"}})


class ScheduleTarget(VerbTarget):
    """``/v1/schedule`` around the real decision."""

    def make_seeds(self) -> None:
        """See VerbTarget."""
        pool = {"namespace": NS, "name": "dispatcher"}
        vpod = {
            "namespace": "tenant",
            "name": "b",
            "kind": "Broker",
            "group": "x.dev",
            "vreplicas": 8,
            "slotsPerVReplica": 2,
        }
        placed = [
            {"podName": "dispatcher-1", "vreplicas": 3},
            {"podName": "dispatcher-2", "vreplicas": 1},
        ]
        self.seeds = [
            orjson.dumps({"vpod": vpod, "pool": pool}),
            orjson.dumps({"vpod": {**vpod, "placements": placed, "vreplicas": 2}, "pool": pool}),
            orjson.dumps({"vpod": {**vpod, "placements": placed, "deleted": True}, "pool": pool}),
            orjson.dumps(
                {
                    "vpod": {"namespace": "tenant", "name": "c", "vreplicas": 1},
                    "pool": {**pool, "name": "other"},
                }
            ),
            orjson.dumps({"vpod": {**vpod, "vreplicas": 200_000}, "pool": pool}),
        ]
        self.verb = schedule_verb(self)

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            reply, status = await self.verb.schedule(data)
        except WireError as error:
            if error.status not in VERB_STATUSES | {404, 409, 503}:
                raise Broken(f"status {error.status} is not documented") from error
            return outcome_of(error)
        result = orjson.loads(reply)
        if (
            not {"placements", "left"}
            <= result.keys()
            <= {"placements", "left", "reason", "retryAfterSeconds"}
        ):
            raise Broken(f"no reply of /v1/schedule: {reply[:200]!r}")
        pods = [item["podName"] for item in result["placements"]]
        shares = [item["vreplicas"] for item in result["placements"]]
        known = self.caches.state.pool(POOL).pods
        if (
            len(set(pods)) != len(pods)
            or any(share < 1 for share in shares)
            or result["left"] < 0
            or not set(pods) <= set(known)
        ):
            raise Broken(f"placements that cannot be: {reply[:300]!r}")
        return f"200 {status} {min(len(pods), 3)} {result.get('reason')} {min(result['left'], 2)}"

    async def check(self) -> None:
        """See Target."""
        await super().check()
        await asyncio.sleep(0)
        if self.verb._deciding:
            raise Broken("decisions are left running")


class StateQueryTarget(VerbTarget):
    """The query string of ``/state.json``, parsed as aiohttp does."""

    structural = 0.0

    def make_seeds(self) -> None:
        """See VerbTarget."""
        self.seeds = [
            b"",
            b"pool=knative-eventing%2Fdispatcher",
            b"pool=knative-eventing/dispatcher&vpod=tenant/a",
            b"vpod=tenant%2Fa&x=1;y=2",
            b"vpod=%F0%9F%98%80&pool=+",
            b"pool=%ff%fe&pool=%00",
            b"vpod=tenant/many",
        ]
        self.words = (
            "pool=",
            "vpod=",
            "%2F",
            "&",
            "%00",
            "%ff",
            "%",
            "%u0041",
            ";",
            "tenant/heavy",
            POOL,
        )

    async def run(self, data: bytes) -> str:
        """See Target."""
        text = data.decode("latin-1")
        if "#" in text or len(text) > 8190:  # never reaches a handler as a query
            return "no query"
        try:
            query = URL.build(path="/state.json", query_string=text, encoded=True).query
        except ValueError as error:
            return outcome_of(error)
        page = result_of(state_steps(self.caches.state, nothing_decided, StateQuery.of(query)))
        read = orjson.loads(orjson.dumps(page))
        return f"200 {len(read['pools'])} {sum(len(pool['vpodList']) for pool in read['pools'])}"


def _wire_outcome(error: WireError) -> str:
    if error.status not in VERB_STATUSES:
        raise Broken(f"status {error.status} is not documented") from error
    return outcome_of(error)


def _check_filter(result: Mapping[str, object], asked: frozenset[str]) -> str:
    """An ExtenderFilterResult in order; what it says, in short."""
    if result.keys() != {
        "Nodes",
        "NodeNames",
        "FailedNodes",
        "FailedAndUnresolvableNodes",
        "Error",
    }:
        raise Broken(f"no ExtenderFilterResult: {sorted(result)}")
    names, nodes = result["NodeNames"], result["Nodes"]
    if (names is None) == (nodes is None):
        raise Broken("NodeNames and Nodes, or neither")
    if isinstance(nodes, dict):
        names = [node["metadata"]["name"] for node in nodes["items"]]
    failed, unresolvable = result["FailedNodes"], result["FailedAndUnresolvableNodes"]
    if (
        not isinstance(names, list)
        or not isinstance(failed, dict)
        or not isinstance(unresolvable, dict)
    ):
        raise Broken("wrong types in an ExtenderFilterResult")
    told = [*names, *failed, *unresolvable]
    if not asked.issuperset(told) or len(set(told)) != len(told) or len(told) != len(asked):
        raise Broken(
            f"not every node that was asked about, once: {told[:5]} for {sorted(asked)[:5]}"
        )
    reasons = sorted({str(reason) for reason in (*failed.values(), *unresolvable.values())})
    return f"{min(len(names), 3)} pass, {','.join(reasons)}"


def _asked(data: bytes) -> frozenset[str]:
    document = orjson.loads(data)
    names: set[str] = set()
    for listed in in_any_case(document, "NodeNames"):
        names.update(name for name in listed or () if isinstance(name, str))  # type: ignore[attr-defined]
    for nodes in in_any_case(document, "Nodes"):
        for items in in_any_case(nodes, "items"):
            names.update(node["metadata"]["name"] for node in items or ())  # type: ignore[attr-defined]
    return frozenset(names)


def _proposed(data: bytes) -> dict[str, set[str]]:
    document = orjson.loads(data)
    proposed: dict[str, set[str]] = {}
    for key in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        for by_node in in_any_case(document, key):
            for node, victims in (by_node or {}).items():  # type: ignore[attr-defined]
                pods = [pod for listed in in_any_case(victims, "Pods") for pod in listed or ()]  # type: ignore[attr-defined]
                direct = {str(uid) for pod in pods for uid in in_any_case(pod, "UID")}
                described = [
                    pod["metadata"] for pod in pods if isinstance(pod.get("metadata"), dict)
                ]
                proposed[node] = direct | {
                    metadata["uid"] for metadata in described if "uid" in metadata
                }
    return proposed
