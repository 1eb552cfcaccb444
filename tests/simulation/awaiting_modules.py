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
    "extender/kube/tokens.py": "a program of its own; its writes are files, and a token that is lost is made anew",
