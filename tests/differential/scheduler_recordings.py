"""Clusters as kube-apiserver stored them with what kube-scheduler made of them, as one JSON file:
the comparison without a control plane.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from extender.kube.api import Obj
from tests.differential.scheduler_cases import SchedulerCase
from tests.differential.scheduler_real import Verdict

RECORDED: Final = Path(__file__).parent / "recordings" / "scheduler.json"
Recording = tuple[SchedulerCase, Mapping[str, Verdict]]
_PARTS: Final = ("lookups", "nodes", "running", "pending")
_NOISE: Final = frozenset(
    {
        "managedFields",
        "creationTimestamp",
        "generation",
        "conditions",
        "dnsPolicy",
        "enableServiceLinks",
        "imagePullPolicy",
        "nodeInfo",
        "daemonEndpoints",
        "securityContext",
        "template",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "resourceVersion",
        "qosClass",
        "lastPhaseTransitionTime",
        "schedulerName",
        "persistentVolumeReclaimPolicy",
        "volumeMode",
    }
)
"""Fields that no scheduler looks at."""
_NOISE_OF_NODES: Final = _NOISE | {"capacity"}


def save(path: Path, recordings: Iterable[Recording]) -> None:
    """Writes them, one cluster a line."""
    lines = [json.dumps(_encoded(case, verdicts), sort_keys=True) for case, verdicts in recordings]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def load(path: Path = RECORDED) -> list[Recording]:
    """Reads them."""
    return [_decoded(item) for item in json.loads(path.read_text())]


def _encoded(case: SchedulerCase, verdicts: Mapping[str, Verdict]) -> Obj:
    parts = {
        part: [
            _without(_NOISE_OF_NODES if obj["kind"] == "Node" else _NOISE, obj)
            for obj in getattr(case, part)
        ]
        for part in _PARTS
    }
    return {
        "name": case.name,
        **parts,
        "terminating": sorted(case.terminating),
        "verdicts": {
            pod: {
                "feasible": sorted(verdict.feasible),
                "text": verdict.text,
                "scores": _by_plugin(verdict),
            }
            for pod, verdict in verdicts.items()
        },
    }


def _by_plugin(verdict: Verdict) -> dict[str, list[int]]:
    """Plugin to its scores in the order of the nodes' names; less those that are all 0."""
    plugins = sorted({plugin for scores in verdict.scores.values() for plugin in scores})
    found = {
        plugin: [verdict.scores.get(node, {}).get(plugin, 0) for node in sorted(verdict.feasible)]
        for plugin in plugins
    }
    return {plugin: scores for plugin, scores in found.items() if any(scores)}


def _without(noise: frozenset[str], value: Any) -> Any:
    if isinstance(value, list):
        return [_without(noise, item) for item in value]
    if isinstance(value, dict):
        return {key: _without(noise, item) for key, item in value.items() if key not in noise}
    return value


def _decoded(item: Mapping[str, Any]) -> Recording:
    parts = {part: tuple(item[part]) for part in _PARTS}
    case = SchedulerCase(name=item["name"], terminating=frozenset(item["terminating"]), **parts)
    verdicts = {
        pod: Verdict(
            frozenset(verdict["feasible"]),
            verdict["text"],
            {
                node: {plugin: scores[index] for plugin, scores in verdict["scores"].items()}
                for index, node in enumerate(verdict["feasible"])
            }
            if verdict["scores"]
            else {},
        )
        for pod, verdict in item["verdicts"].items()
    }
    return case, verdicts
