"""Two verdicts beside each other, as mismatches with a kind: what a shrunk case must keep."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.differential.scheduler_real import Verdict

FEASIBLE: Final = "feasible"
TEXT: Final = "text"
SCORE: Final = "score"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference on one pod. ``kind`` is FEASIBLE, TEXT, or SCORE with the plugin; ``theirs``
    is kube-scheduler's.
    """

    pod: str
    kind: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.kind}: kube-scheduler {self.theirs}, embedded {self.ours}"


def mismatches(
    theirs: Mapping[str, Verdict],
    ours: Mapping[str, Verdict],
    unscored: Container[str] = frozenset(),
) -> list[Mismatch]:
    """All differences, pod by pod: nodes first, then texts, then scores plugin by plugin.
    ``unscored``: pods whose scores kube-scheduler was not asked for.
    """
    return [
        found
        for pod in theirs
        for found in _of_pod(pod, theirs[pod], ours[pod])
        if pod not in unscored or not found.kind.startswith(SCORE)
    ]


def _of_pod(pod: str, theirs: Verdict, ours: Verdict) -> Iterator[Mismatch]:
    if theirs.feasible != ours.feasible:
        yield Mismatch(pod, FEASIBLE, str(sorted(theirs.feasible)), str(sorted(ours.feasible)))
    if theirs.text != ours.text:
        yield Mismatch(pod, TEXT, theirs.text, ours.text)
    if theirs.feasible != ours.feasible:
        return
    plugins = {
        name for verdict in (theirs, ours) for scores in verdict.scores.values() for name in scores
    }
    for plugin in sorted(plugins):
        one, other = _of_plugin(theirs, plugin), _of_plugin(ours, plugin)
        if one != other:
            different = [node for node in one if one[node] != other.get(node)]
            yield Mismatch(
                pod,
                f"{SCORE} {plugin}",
                str({node: one[node] for node in different}),
                str({node: other.get(node) for node in different}),
            )


def _of_plugin(verdict: Verdict, plugin: str) -> dict[str, int]:
    """Scores by node, sorted by node. A plugin that skipped the pod gave 0."""
    return {node: verdict.scores.get(node, {}).get(plugin, 0) for node in sorted(verdict.feasible)}
