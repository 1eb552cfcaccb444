"""Adapters that look at their assignments when the director says so, do at once what these say, and
acknowledge it at a replica.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import orjson

from extender.kube.api import PODS
from extender.kube.token_review import TokenUser
from extender.lab.apiserver.cluster import Cluster
from extender.lab.simulation.world.adapters import LEASE_PART, OnServe, Served, SimulatedAdapter
from extender.model.errors import WireError
from extender.model.indexes import indexes_from
from extender.model.names import ASSIGNMENT_ANNOTATION
from extender.service.http.adapters.acknowledge import AcknowledgeVerb
from extender.service.http.adapters.callers import AdapterCaller
from tests.support.builders import NS

USER: Final = TokenUser("system:serviceaccount:adapters:dispatcher")


class SteppedAdapters:
    """One in each pod that is told something. ``on_serve``: as of ``SimulatedAdapters``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.on_serve: OnServe = lambda _pod, _vpod, _served: None
        self._adapters: dict[str, SimulatedAdapter] = {}
        """By pod name."""

    def adapter(self, pod: str) -> SimulatedAdapter | None:
        """The adapter that runs in a pod."""
        return self._adapters.get(pod)

    def state(self) -> Hashable:
        """For comparing states: what each of them does."""
        return tuple(
            (name, frozenset(adapter.serving.items()), frozenset(adapter.prepared))
            for name, adapter in sorted(self._adapters.items())
        )

    async def look(self, ordinal: int, verb: AcknowledgeVerb, now: float) -> None:
        """Do what the assignment of a pod says, and acknowledge that once. ``now``: the loop's
        time, in seconds.
        """
        name = f"dispatcher-{ordinal}"
        pod = await self._cluster.get(PODS, NS, name)
        text = (pod["metadata"].get("annotations") or {}).get(ASSIGNMENT_ANNOTATION)
        if text is None:
            return
        uid, told = pod["metadata"]["uid"], orjson.loads(text)
        adapter = self._adapters.get(name)
        if adapter is None or adapter.uid != uid:
            adapter = self._adapters[name] = SimulatedAdapter(uid, 0.0, "", silent=False)
        adapter.told = told
        self._do(name, adapter, told["shares"], now)
        caller = AdapterCaller(USER, f"{NS}/{name}", uid)
        try:
            await verb.acknowledge(caller, _body(adapter, told))
        except WireError:
            return  # it looks again
        adapter.lease_until = now + LEASE_PART * adapter.lease_s

    def _do(
        self, name: str, adapter: SimulatedAdapter, shares: Mapping[str, Any], now: float
    ) -> None:
        before = dict(adapter.serving)
        adapter.prepared = {key for key, share in shares.items() if share["state"] == "Prepare"}
        adapter.serving = {
            key: Served(share["vreplicas"], indexes_from(share.get("indexes", "")))
            for key, share in shares.items()
            if share["state"] == "Serve" and adapter.may_serve(now)
        }
        for key, served in adapter.serving.items():
            if adapter.lease_s and served != before.get(key):
                self.on_serve(name, key, self._served(key, now))

    def _served(self, key: str, now: float) -> list[tuple[str, Served]]:
        return [
            (name, adapter.serving[key])
            for name, adapter in self._adapters.items()
            if key in adapter.serving and adapter.may_serve(now)
        ]


def _body(adapter: SimulatedAdapter, told: Mapping[str, Any]) -> bytes:
    states = {key: share["state"] for key, share in told["shares"].items()}
    return orjson.dumps(
        {
            "uid": told["uid"],
            "generation": told["generation"],
            "serving": [key for key in states if key in adapter.serving],
            "drained": [key for key, state in states.items() if state == "Drain"],
        }
    )
