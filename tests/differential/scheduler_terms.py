"""Draws of what pods say about nodes and about each other: labels, taints, tolerations, selectors,
affinities, spread constraints.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.scheduler.types import HOSTNAME_LABEL
from extender.model.names import ZONE_LABEL

_TOPOLOGY_KEYS: Final = (
    HOSTNAME_LABEL,
    ZONE_LABEL,
    ZONE_LABEL,
    "disk",
    "topology.kubernetes.io/region",
)
_TAINT_KEYS: Final = ("dedicated", "maintenance")
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute")
_POD_LABELS: Final = {
    "app": ("web", "db", "cache"),
    "tier": ("front", "back"),
    "version": ("1", "2"),
}
_NODE_LABELS: Final = {
    "disk": ("ssd", "hdd"),
    ZONE_LABEL: ("z0", "z1", "z2"),
    "size": ("1", "2", "10", "big"),
}
_NAMESPACES: Final = ("default", "team-a", "team-b")


class Terms:
    """All draws of a case, from its random. While ``hard`` is False they only prefer: then many
    nodes fit, and are scored.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.hard = True

    def _maybe(self, probability: float) -> bool:
        return self._rng.random() < probability

    def labels(self) -> dict[str, str]:
        """Labels of a pod."""
        return {
            key: self._rng.choice(values)
            for key, values in _POD_LABELS.items()
            if self._maybe(0.65)
        }

    def node_labels(self) -> dict[str, str]:
        """A nodeSelector of one label."""
        key = self._rng.choice(tuple(_NODE_LABELS))
        return {key: self._rng.choice(_NODE_LABELS[key])}

    def taints(self) -> list[Obj]:
        """Taints of a node; key and effect are unique on it."""
        found = {}
        for _ in range(self._rng.choice((0, 0, 0, 1, 1, 2, 3))):
            key, effect = self._rng.choice(_TAINT_KEYS), self._rng.choice(_TAINT_EFFECTS)
            taint = {"key": key, "effect": effect}
            if self._maybe(0.7):
                taint["value"] = self._rng.choice(("a", "b"))
            found[key, effect] = taint
        return list(found.values())

    def tolerations(self) -> list[Obj]:
        """Tolerations of a pod."""
        if not self.hard and self._maybe(0.5):
            return [
                {"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")
            ]
        found: list[Obj] = []
        for _ in range(self._rng.randint(1, 3)):
            toleration: dict[str, Any] = {}
            if self._maybe(0.85):
                toleration["key"] = self._rng.choice(
                    (*_TAINT_KEYS, "node.kubernetes.io/unschedulable")
                )
            if "key" not in toleration or self._maybe(0.5):
                toleration["operator"] = "Exists"
            elif self._maybe(0.8):
                toleration["value"] = self._rng.choice(("a", "b"))
            if self._maybe(0.6):
                toleration["effect"] = self._rng.choice(_TAINT_EFFECTS)
            found.append(toleration)
        return found

    # Selectors

    def selector(self) -> Obj:
        """A LabelSelector over pods' labels."""
        found: Obj = {}
        if self._maybe(0.6):
            key = self._rng.choice(tuple(_POD_LABELS))
            found["matchLabels"] = {key: self._rng.choice(_POD_LABELS[key])}
        if self._maybe(0.4):
            key = self._rng.choice(tuple(_POD_LABELS))
            found["matchExpressions"] = [self._requirement(key, _POD_LABELS[key])]
        return found

    def _selector_of_its_own(self, labels: dict[str, str]) -> Obj:
        """Often one that the pod itself meets: then placing it there counts."""
        if not labels or self._maybe(0.3):
            return self.selector()
        key = self._rng.choice(tuple(labels))
        return {"matchLabels": {key: labels[key]}}

    def _requirement(self, key: str, values: Sequence[str]) -> Obj:
        operator = self._rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        if operator in {"In", "NotIn"}:
            chosen = self._rng.sample(values, self._rng.randint(1, 2))
            return {"key": key, "operator": operator, "values": chosen}
        return {"key": key, "operator": operator}

    def _node_requirement(self) -> Obj:
        if self._maybe(0.25):
            operator = self._rng.choice(("Gt", "Lt"))
            return {
                "key": "size",
                "operator": operator,
                "values": [self._rng.choice(("1", "2", "0", "9"))],
            }
        key = self._rng.choice(tuple(_NODE_LABELS))
        return self._requirement(key, _NODE_LABELS[key])

    def node_term(self, nodes: Sequence[str]) -> Obj:
        """A NodeSelectorTerm, sometimes with a field, sometimes empty."""
        term: Obj = {}
        if self._maybe(0.9):
            term["matchExpressions"] = [
                self._node_requirement() for _ in range(self._rng.choice((1, 1, 2)))
            ]
        if self._maybe(0.15):
            operator = self._rng.choice(("In", "NotIn"))
            name = self._rng.choice((*nodes, "node-gone"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        return term

    # Affinities

    def node_affinity(self, nodes: Sequence[str]) -> Obj:
        """Required terms, preferred ones, or both."""
        found: Obj = {}
        if self.hard and self._maybe(0.5):
            terms = [self.node_term(nodes) for _ in range(self._rng.randint(1, 2))]
            found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if not found or self._maybe(0.6):
            found["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._rng.choice((1, 7, 50, 100)), "preference": self.node_term(nodes)}
                for _ in range(self._rng.randint(1, 3))
            ]
        return found

    def pod_affinities(self) -> Obj:
        """Affinity, anti-affinity, or both."""
        found: Obj = {}
        if self._maybe(0.55):
            found["podAffinity"] = self._pod_affinity()
        if not found or self._maybe(0.5):
            found["podAntiAffinity"] = self._pod_affinity()
        return found

    def affinity_to_its_own(self, labels: dict[str, str]) -> Obj:
        """Required affinity to pods like itself: the first of them may go anywhere."""
        term = {
            "topologyKey": self._rng.choice(_TOPOLOGY_KEYS),
            "labelSelector": {"matchLabels": labels},
        }
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _pod_affinity(self) -> Obj:
        found: Obj = {}
        if self.hard and self._maybe(0.45):
            found["requiredDuringSchedulingIgnoredDuringExecution"] = [
                self._pod_term() for _ in range(self._rng.choice((1, 1, 2)))
            ]
        if not found or self._maybe(0.5):
            found["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._rng.choice((1, 30, 100)), "podAffinityTerm": self._pod_term()}
                for _ in range(self._rng.randint(1, 2))
            ]
        return found

    def _pod_term(self) -> Obj:
        term: Obj = {"topologyKey": self._rng.choice(_TOPOLOGY_KEYS)}
        if self._maybe(0.92):
            term["labelSelector"] = self.selector()
            self._label_keys(term)
        if self._maybe(0.2):
            term["namespaces"] = self._rng.sample(_NAMESPACES, self._rng.randint(1, 2))
        if self._maybe(0.2):
            chosen: Obj = self._rng.choice(
                ({}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"env": "prod"}})
            )
            term["namespaceSelector"] = chosen
        return term

    def _label_keys(self, term: Obj) -> None:
        # matchLabelKeys must not name keys that the selector names.
        if "version" in str(term["labelSelector"]):
            return
        if self._maybe(0.1):
            term["matchLabelKeys"] = ["version"]
        elif self._maybe(0.1):
            term["mismatchLabelKeys"] = ["version"]

    def spread(self, labels: dict[str, str]) -> list[Obj]:
        """Topology spread constraints of a pod with these labels; key and action are unique in a
        pod.
        """
        found: dict[tuple[str, str], Obj] = {}
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            key = self._rng.choice(_TOPOLOGY_KEYS)
            action = (
                self._rng.choice(("DoNotSchedule", "ScheduleAnyway"))
                if self.hard
                else "ScheduleAnyway"
            )
            constraint: Obj = {
                "maxSkew": self._rng.choice((1, 1, 1, 2, 5)),
                "topologyKey": key,
                "whenUnsatisfiable": action,
            }
            if self._maybe(0.92):
                constraint["labelSelector"] = self._selector_of_its_own(labels)
                if self._maybe(0.3) and "version" not in str(constraint["labelSelector"]):
                    constraint["matchLabelKeys"] = ["version"]
            if action == "DoNotSchedule" and self._maybe(0.4):
                constraint["minDomains"] = self._rng.choice((1, 2, 3, 3))
            if self._maybe(0.2):
                constraint["nodeAffinityPolicy"] = self._rng.choice(("Ignore", "Honor"))
            if self._maybe(0.2):
                constraint["nodeTaintsPolicy"] = self._rng.choice(("Ignore", "Honor"))
            found[key, action] = constraint
        return list(found.values())
