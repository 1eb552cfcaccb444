"""Which modules' awaits have to be reached by a kill (``await_points``), and why the others' have not.

Every module whose suspensions are watched (``suspensions.WATCHED``) and that has an await stands in one of the two. What
belongs to placing, binding, moving, scaling and failover is in ``CHECKED``.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.simulation.suspensions import ROOT, WATCHED

CHECKED: Final = (
    *(
        f"extender/service/{name}.py"
        for name in (
            "autoscaler", "availability", "binder", "committer", "evictor", "foreign_writes", "informers", "leadership", "ledger_writer", "placer",
            "pod_binder", "pool_scaler", "pool_status", "predecessors", "queue", "reactivator", "reconciler", "rescheduler",
            "scale_cache", "schedule", "sources", "status_doubts", "verbs",
        )
    ),
    "extender/kube/leader.py",
    "extender/kube/reflector.py",
    "extender/kube/events.py",
    "extender/kube/fenced.py",
    "extender/kube/sources.py",
    "extender/app.py",
)  # fmt: skip

WIRE: Final = (
    "under the Api that the simulation puts in its place, whose calls are killed in each phase instead"
)
LISTENER: Final = "between a socket and its handler; the simulation calls the handlers"
ASKED: Final = "answers whoever looks or asks, from memory, and writes nothing"
TOOL: Final = "part of a command, which is not the service and holds nothing that has to last"
NOT_CHECKED: Final[Mapping[str, str]] = {
    "extender/kube/access.py": WIRE,
    "extender/kube/bodies.py": LISTENER,
    "extender/kube/browsers.py": LISTENER,
    "extender/kube/budget.py": WIRE,
    "extender/kube/client.py": WIRE,
    "extender/kube/connection.py": WIRE,
    "extender/kube/ratelimit.py": WIRE,
    "extender/kube/read_only.py": "its reads are the Api's own; nothing is read through it where something is written",
    "extender/kube/readers.py": ASKED,
    "extender/kube/replica.py": TOOL,
    "extender/kube/serving.py": LISTENER,
    "extender/kube/serving_tls.py": "looks at files of certificates beside everything else",
    "extender/kube/sockets.py": LISTENER,
    "extender/kube/tokens.py": "a program of its own; its writes are files, and a token that is lost is made anew",
    "extender/kube/transport.py": WIRE,
    "extender/service/decision_log.py": ASKED,
    "extender/service/first_lists.py": "tells in the log how far the first lists are, beside the service, which waits for them itself",
    "extender/service/journal_ring.py": ASKED,
    "extender/service/overload.py": "reads a body before its verb begins, and waits for the last verb at a stop; no verb waits in it",
    "extender/service/overview.py": ASKED,
    "extender/service/page/facts.py": ASKED,
    "extender/service/page/history.py": "samples for a page, in memory only",
    "extender/service/page/routes.py": ASKED,
    "extender/service/page/stream.py": ASKED,
    "extender/service/process_metrics.py": "measures the event loop beside everything else",
    "extender/service/questions.py": ASKED,
    "extender/service/recorder.py": TOOL,
    "extender/service/reloading.py": "looks at files of settings beside everything else; new ones are taken without an await",
    "extender/service/server.py": LISTENER,
    "extender/service/shadow.py": "shadow mode, which writes nothing",
    "extender/service/watching.py": TOOL,
}  # fmt: skip
"""Module -> why nobody has to be killed at its awaits."""


def watched() -> Iterator[str]:
    """Every module whose suspensions are watched, as a path from the root."""
    for start in WATCHED:
        for path in [ROOT / start] if start.endswith(".py") else sorted((ROOT / start).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix()
