"""nodeSelector and nodeAffinity of a pod against a node (component-helpers' nodeaffinity).

Terms are ORed, the requirements of one term are ANDed. An empty term matches nothing. A term that
cannot be parsed also matches nothing: an unknown operator, ``Gt`` or ``Lt`` without exactly one
integer, or a field without exactly one value or with another operator than In or NotIn.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.model.reading import Json, mapping, mappings, sequence, text

_INT64_MAX = 2**63


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One NodeSelectorRequirement: on a label, or with ``is_field`` on metadata.name."""

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False

    @property
    def valid(self) -> bool:
        """Whether kube-scheduler can parse it."""
        if self.is_field:
            return self.operator in {"In", "NotIn"} and len(self.values) == 1
        match self.operator:
            case "In" | "NotIn":
                return bool(self.values)
            case "Exists" | "DoesNotExist":
                return not self.values
            case "Gt" | "Lt":
                return len(self.values) == 1 and _integer(self.values[0]) is not None
            case _:
                return False

    def matches(self, value: str | None) -> bool:
        """Return whether a label's value (None: absent) satisfies it."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        number, bound = _integer(value), _integer(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


def _integer(value: str | None) -> int | None:
    """Parse an int64 as Go's ParseInt does."""
    if (
        value is None
        or not value.isascii()
        or not value.lstrip("+-").isdigit()
        or value.count("-") > 1
    ):
        return None
    number = int(value)
    return number if -_INT64_MAX <= number < _INT64_MAX else None


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One NodeSelectorTerm. ``weight`` is that of a preference."""

    requirements: tuple[NodeRequirement, ...]
    weight: int = 0

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node with that name and these labels matches."""
        return bool(self.requirements) and all(
            requirement.valid
            and requirement.matches(
                _field(requirement.key, name)
                if requirement.is_field
                else labels.get(requirement.key)
            )
            for requirement in self.requirements
        )

    @property
    def named_nodes(self) -> frozenset[str] | None:
        """The node names that ``metadata.name In`` allows; None if the term does not name nodes."""
        names: frozenset[str] | None = None
        for requirement in self.requirements:
            if (
                requirement.is_field
                and requirement.key == "metadata.name"
                and requirement.operator == "In"
            ):
                found = frozenset(requirement.values)
                names = found if names is None else names & found
        return names


def _field(key: str, name: str) -> str:
    return name if key == "metadata.name" else ""


def node_selector_term(raw: Json, weight: int = 0) -> NodeSelectorTerm:
    """Parse a NodeSelectorTerm."""

    def parse(kind: str, *, is_field: bool) -> list[NodeRequirement]:
        return [
            NodeRequirement(
                text(item, "key"),
                text(item, "operator"),
                tuple(str(v) for v in sequence(item, "values")),
                is_field,
            )
            for item in mappings(raw, kind)
        ]

    return NodeSelectorTerm(
        (*parse("matchExpressions", is_field=False), *parse("matchFields", is_field=True)), weight
    )


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """spec.nodeSelector and node affinity. ``terms`` None: no required affinity is set."""

    selector: Mapping[str, str]
    terms: tuple[NodeSelectorTerm, ...] | None
    preferred: tuple[NodeSelectorTerm, ...]

    @classmethod
    def of_pod(cls, pod: Json) -> "RequiredNodeAffinity":
        """Read it from a pod."""
        affinity = mapping(pod, "spec", "affinity", "nodeAffinity")
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        preferred = []
        for item in mappings(affinity, "preferredDuringSchedulingIgnoredDuringExecution"):
            weight = item.get("weight")
            if isinstance(weight, int) and weight:
                preferred.append(node_selector_term(mapping(item, "preference"), weight))
        return cls(
            selector={
                k: v for k, v in mapping(pod, "spec", "nodeSelector").items() if isinstance(v, str)
            },
            terms=tuple(
                node_selector_term(term) for term in mappings(required, "nodeSelectorTerms")
            )
            if isinstance(required, Mapping)
            else None,
            preferred=tuple(preferred),
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is required."""
        return not self.selector and self.terms is None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node satisfies what is required."""
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)

    @property
    def named_nodes(self) -> frozenset[str] | None:
        """The only nodes that can match, if every term names nodes; None if any node may."""
        if not self.terms:
            return None
        names: frozenset[str] = frozenset()
        for term in self.terms:
            named = term.named_nodes
            if named is None:
                return None
            names |= named
        return names
