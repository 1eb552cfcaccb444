"""Suite ``volumebinding/binder`` of assumecache.json: the scripts of Kubernetes' volume binder
tests, step by step on the embedded scheduler's binder.

A case named *environment* has the storage classes of all others and comes first. Objects are
written short in the scripts; ``volume_binder_objects`` makes API objects of them.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import NamedTuple, cast

from extender.kube.api import Api, Obj, Resource
from extender.lab.apiserver.registry import (
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from extender.lab.clock import run_virtual
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import NodeView
from extender.lab.scheduler.volumebinding.binder import UNBOUND_IMMEDIATE, VolumeBinder
from extender.lab.scheduler.volumebinding.matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
)
from extender.lab.scheduler.volumebinding.pod_volumes import (
    BindingInfo,
    DynamicProvision,
    PodVolumes,
    VolumeBindingError,
)
from extender.model.reading import key_of
from tests.conformance.result import Case, Difference
from tests.conformance.volume_binder_objects import (
    Server,
    Step,
    capacity_of,
    claim_of,
    created_of,
    metadata_of,
    node_of,
    pod_of,
    storage_class_of,
    unversioned,
    volume_of,
)

SUITE = "volumebinding/binder"
NEVER_NIL = Difference(
    "a volume binder has no lists that are nil",
    "Python's lists of bindings are never None; a pod without any has nothing to bind",
)
_ANNOTATIONS = {
    "bind_completed": BIND_COMPLETED,
    "bound_by_controller": BOUND_BY_CONTROLLER,
    "selected_node": SELECTED_NODE,
}


class VolumeBinderCases:
    """Checks the cases of one run."""

    def __init__(self) -> None:
        self._environment: Case | None = None

    def check(self, case: Case) -> str | Difference | None:
        """One case, or the environment."""
        if case.get("kind") == "environment":
            self._environment = case
            found = case["annotations"]
            return None if found == _ANNOTATIONS else f"annotations {found}, ours {_ANNOTATIONS}"
        if any(
            step["op"] == "check_bindings" and None in (step["bindings"], step["provisioned_pvcs"])
            for step in case["steps"]
        ):
            return NEVER_NIL
        if self._environment is None:
            return "no case named environment was before this one"
        try:
            run_virtual(_Script(self._environment, case).run())
        except _Mismatch as mismatch:
            return str(mismatch)
        return None


class _Mismatch(Exception):
    """What a step expected did not happen."""


class _Failed(NamedTuple):
    text: str


# -- running a script ------------------------------------------------------------------------------


class _Script:
    """The steps of a case, and what they share."""

    def __init__(self, environment: Case, case: Case) -> None:
        self._steps: list[Step] = case["steps"]
        self._binds = any(step["op"] == "bind_pod_volumes" for step in self._steps)
        self._listers = Listers()
        self._server = Server(self._listers)
        self._nodes: dict[str, NodeView] = {}
        self._volumes = PodVolumes()
        self._later: list[asyncio.Task[None]] = []
        self._binder = VolumeBinder(
            self._listers,
            cast("Api", self._server),
            node=self._nodes.get,
            timeout_s=environment["bind_timeout_seconds"],
        )
        for raw in environment["storage_classes"]:
            self._store(STORAGECLASSES)[raw["name"]] = storage_class_of(raw)
        self._ops: dict[str, Callable[[Step], None]] = {
            "init_pvs": lambda step: self._init(PERSISTENTVOLUMES, volume_of, step),
            "init_pvcs": lambda step: self._init(PERSISTENTVOLUMECLAIMS, claim_of, step),
            "init_nodes": self._init_nodes,
            "init_csi_nodes": self._init_csi_nodes,
            "add_csi_driver": self._add_csi_driver,
            "add_csi_storage_capacities": self._add_capacities,
            "find_pod_volumes": self._find,
            "assume": self._assume,
            "assume_pod_volumes": self._assume_pod_volumes,
            "revert_assumed_pod_volumes": lambda _: self._binder.revert_assumed_pod_volumes(
                self._volumes
            ),
            "check_caches": self._check_caches,
            "check": self._check,
            "api_update_pvs": lambda step: self._seen(PERSISTENTVOLUMES, volume_of, step),
            "api_update_pvcs": lambda step: self._seen(PERSISTENTVOLUMECLAIMS, claim_of, step),
            "delete_pvs": lambda step: self._gone(PERSISTENTVOLUMES, step),
            "delete_pvcs": lambda step: self._gone(PERSISTENTVOLUMECLAIMS, step),
            "check_bindings": self._check_bindings,
            "after_seconds": lambda step: self._later.append(
                asyncio.get_running_loop().create_task(self._do_later(step))
            ),
        }

    async def run(self) -> None:
        """Raises _Mismatch."""
        for number, step in enumerate(self._steps):
            try:
                if step["op"] == "bind_api_update":
                    await self._bind_api_update(step)
                elif step["op"] == "bind_pod_volumes":
                    await self._bind_pod_volumes(step)
                elif step["op"] in self._ops:
                    self._ops[step["op"]](step)
                else:
                    raise _Mismatch("unknown op")
            except _Mismatch as mismatch:
                raise _Mismatch(f"step {number}, {step['op']}: {mismatch}") from None
        for task in self._later:
            await task

    def _store(self, resource: Resource) -> dict[str, Obj]:
        return self._listers.stores[resource]

    @staticmethod
    def _expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise _Mismatch(f"{what}: expected {wanted}, found {found}")

    def _expect_outcome(self, outcome: _Failed | None, wanted: Step) -> None:
        """Whether it failed, and with which text."""
        text = outcome.text if outcome is not None else None
        if (outcome is not None) is not wanted["error"]:
            raise _Mismatch(f"expected {wanted.get('error_text', 'no error')}, found {text}")
        if "error_text" in wanted:
            self._expect("text", text, wanted["error_text"])

    # what is there

    def _init(self, resource: Resource, read: Callable[[Step], Obj], step: Step) -> None:
        for raw in step["cached"] if "cached" in step else step["objects"]:
            self._store(resource)[key_of(read(raw))] = read(raw)
        for raw in step["api"] if "api" in step else step["objects"]:
            self._server.stored[resource][key_of(read(raw))] = read(raw)

    def _init_nodes(self, step: Step) -> None:
        # The recording names the nodes also where upstream has initialised nothing, and says so.
        if not any("nothing was initialised" in one.get("note", "") for one in self._steps):
            self._nodes.update({raw["name"]: node_of(raw) for raw in step["objects"]})

    def _init_csi_nodes(self, step: Step) -> None:
        for raw in step["objects"]:
            self._store(CSINODES)[raw["name"]] = {"metadata": metadata_of(raw), "spec": {}}

    def _add_csi_driver(self, step: Step) -> None:
        if (raw := step["object"]) is not None:
            spec = {"storageCapacity": raw["storageCapacity"]}
            self._store(CSIDRIVERS)[raw["name"]] = {"metadata": metadata_of(raw), "spec": spec}

    def _add_capacities(self, step: Step) -> None:
        for raw in step["objects"]:
            self._store(CSISTORAGECAPACITIES)[raw["name"]] = capacity_of(raw)

    def _seen(self, resource: Resource, read: Callable[[Step], Obj], step: Step) -> None:
        for raw in step["objects"]:
            self._store(resource)[key_of(read(raw))] = read(raw)
            self._listers.changed(resource, read(raw))

    def _gone(self, resource: Resource, step: Step) -> None:
        for key in step["objects"]:
            self._listers.changed(resource, self._store(resource).pop(key))

    # find and assume

    def _find(self, step: Step) -> None:
        for _ in range(step.get("repeat", 1)):
            wanted, outcome, reasons = step["expect"], None, tuple[str, ...]()
            self._volumes = PodVolumes()
            try:
                claims = self._binder.get_pod_volume_claims(pod_of(step["pod"]))
                if claims.immediate:
                    raise VolumeBindingError(UNBOUND_IMMEDIATE)
                self._volumes, reasons = self._binder.find_pod_volumes(
                    claims, node_of(step["node"])
                )
            except VolumeBindingError as error:
                outcome = _Failed(str(error))
            self._expect_outcome(outcome, wanted)
            self._expect("reasons", sorted(reasons), sorted(wanted["reasons"]))
            self._expect_volumes(wanted)

    def _expect_volumes(self, wanted: Step) -> None:
        if "bindings" in wanted:
            bindings = [(one.volume, one.claim) for one in self._volumes.static_bindings]
            raws = wanted["bindings"] or []
            expected = [(volume_of(one["pv"]), claim_of(one["pvc"])) for one in raws]
            self._expect("bindings", bindings, expected)
        if "provisions" in wanted:
            found = [(one.claim, one.capacity) for one in self._volumes.dynamic_provisions]
            raws = wanted["provisions"] or []
            provisions = [
                (claim_of(one["pvc"]), capacity_of(room) if (room := one["nodeCapacity"]) else None)
                for one in raws
            ]
            self._expect("provisions", found, provisions)
        if "provisioned_pvcs" in wanted:
            claims = [one.claim for one in self._volumes.dynamic_provisions]
            self._expect("claims", claims, [claim_of(raw) for raw in wanted["provisioned_pvcs"]])

    def _assume(self, step: Step) -> None:
        for raw in step["pvs"] or ():
            self._listers.assumed_volumes.assume(self._made_volume(raw))
        for raw in step["pvcs"] or ():
            self._listers.assumed_claims.assume(claim_of(raw))

    def _made_volume(self, raw: Step) -> Obj:
        """A volume in the version that it was made from. Of a bind, the recording has what the
        write returned in its place.
        """
        volume = volume_of(raw)
        if self._binds:
            stored = self._server.stored[PERSISTENTVOLUMES][key_of(volume)]
            volume["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        return volume

    def _assume_pod_volumes(self, step: Step) -> None:
        if "bindings" in step:
            self._volumes = PodVolumes(
                [
                    BindingInfo(claim_of(one["pvc"]), volume_of(one["pv"]))
                    for one in step["bindings"] or ()
                ],
                [DynamicProvision(claim_of(one["pvc"])) for one in step["provisions"] or ()],
            )
        kinds = (PERSISTENTVOLUMES, PERSISTENTVOLUMECLAIMS)
        before = {kind: copy.deepcopy(self._store(kind)) for kind in kinds}
        wanted, outcome, all_bound = step["expect"], None, False
        try:
            all_bound = self._binder.assume_pod_volumes(
                pod_of(step["pod"]), step["node"], self._volumes
            )
        except VolumeBindingError as error:
            outcome = _Failed(str(error))
        self._expect_outcome(outcome, wanted)
        self._expect("all bound", all_bound, wanted["all_bound"])
        self._expect_volumes(wanted)
        self._expect("the API's objects", {kind: self._store(kind) for kind in kinds}, before)

    def _check_caches(self, step: Step) -> None:
        volumes, claims = self._listers.assumed_volumes, self._listers.assumed_claims
        if step["expect"].startswith("caches restored"):
            for key, obj in self._store(PERSISTENTVOLUMES).items():
                self._expect(f"volume {key}", volumes.get(key), obj)
            for key, obj in self._store(PERSISTENTVOLUMECLAIMS).items():
                self._expect(f"claim {key}", claims.get(key), obj)
            return
        for binding in self._volumes.static_bindings:
            found = volumes.get(key_of(binding.volume)) or {}
            claim_ref = found["spec"]["claimRef"]
            self._expect("claimRef", claim_ref["name"], binding.claim["metadata"]["name"])
        for provision in self._volumes.dynamic_provisions:
            found = claims.get(key_of(provision.claim)) or {}
            self._expect("node", found["metadata"]["annotations"][SELECTED_NODE], "node1")

    # bind

    def _taken(self, step: Step) -> PodVolumes:
        return PodVolumes(
            [
                BindingInfo(claim_of(one["pvc"]), self._made_volume(one["pv"]))
                for one in step["bindings"]
            ],
            [DynamicProvision(claim_of(raw)) for raw in step["provisioned_pvcs"]],
        )

    def _check_bindings(self, step: Step) -> None:
        wanted, outcome, all_bound = step["expect"], None, False
        try:
            all_bound = self._binder.check_bindings(_THE_POD, step["pod_node"], self._taken(step))
        except VolumeBindingError as error:
            outcome = _Failed(str(error))
        self._expect_outcome(outcome, wanted)
        self._expect("all bound", all_bound, wanted["all_bound"])

    async def _bind_api_update(self, step: Step) -> None:
        outcome = None
        try:
            await self._binder.bind_api_update(self._taken(step))
        except VolumeBindingError as error:
            outcome = _Failed(str(error))
        self._expect_outcome(outcome, step["expect"])

    async def _bind_pod_volumes(self, step: Step) -> None:
        self._server.shows = True
        outcome, taken = None, self._taken(step)
        try:
            await self._binder.bind_pod_volumes(_THE_POD, step["pod_node"], taken)
        except VolumeBindingError as error:
            outcome = _Failed(str(error))
        self._expect_outcome(outcome, step["expect"])

    async def _do_later(self, step: Step) -> None:
        await asyncio.sleep(step["seconds"])
        for act in step["do"]:
            match act["op"]:
                case "api_create_pv":
                    self._server.put(PERSISTENTVOLUMES, created_of(act["object"]))
                case "api_update_pvc":
                    claims = self._server.stored[PERSISTENTVOLUMECLAIMS]
                    claim = copy.deepcopy(claims[act["key"]])
                    claim["spec"]["volumeName"] = act["set"]["volumeName"]
                    annotations = claim["metadata"].setdefault("annotations", {})
                    annotations.update(act["set"]["annotations"])
                    self._server.put(PERSISTENTVOLUMECLAIMS, claim)
                case "api_delete_pod":
                    # Upstream's reactor has no watchers of pods, so the informer keeps the pod.
                    pass
                case unknown:
                    raise _Mismatch(f"unknown op {unknown!r}")

    def _check(self, step: Step) -> None:
        """What the caches and the API server have, in any version. Where the script says nothing
        of the API server, it has what the caches have.
        """
        wanted = step["expect"]
        for resource, cache, read, cached, api in (
            (PERSISTENTVOLUMES, self._listers.assumed_volumes, volume_of, "cached_pvs", "api_pvs"),
            (
                PERSISTENTVOLUMECLAIMS,
                self._listers.assumed_claims,
                claim_of,
                "cached_pvcs",
                "api_pvcs",
            ),
        ):
            for raw in wanted[cached] or ():
                found = cache.get(key_of(read(raw))) or {}
                self._expect(cached, unversioned(found), unversioned(read(raw)))
            raws = wanted[api] if wanted[api] is not None else wanted[cached] or []
            stored = [unversioned(obj) for obj in self._server.stored[resource].values()]
            self._expect(api, stored, [unversioned(read(raw)) for raw in raws])


_THE_POD = pod_of({"name": "test-pod", "namespace": "testns"})
