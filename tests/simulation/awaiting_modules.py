"""Which modules' awaits have to be reached by a kill (``await_points``), and why the others' have
not.

Every module whose suspensions are watched (``suspensions.WATCHED``) and that has an await stands in
one of the two. What belongs to placing, binding, moving, scaling and failover is in ``CHECKED``.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.simulation.suspensions import ROOT, WATCHED

CHECKED: Final = (
    *(
        f"extender/service/{name}.py"
        for name in (
            "binding/binder",
            "binding/ordinal_history_reader",
            "binding/pod_binder",
            "binding/reactivator",
            "binding/verbs",
            "http/schedule",
            "placing/committer",
            "placing/ledger_writer",
            "placing/placer",
            "placing/queue",
            "placing/status_doubts",
            "pools/adapter_leases",
            "pools/assignments",
            "pools/autoscaler",
            "pools/availability",
            "pools/descheduler",
            "pools/evictions",
            "pools/evictor",
            "pools/leadership",
            "pools/load_reports",
            "pools/pool_scaler",
            "pools/pod_evictions",
            "pools/pool_status",
            "pools/quarantine",
            "pools/quota_status",
            "pools/reconciler",
            "pools/rescheduler",
            "pools/rollouts",
            "pools/scale_cache",
            "pools/unserved_shares",
            "watching/unexpected_writes",
            "watching/informers",
            "watching/sources",
        )
    ),
    "extender/kube/leader.py",
    "extender/kube/reflector.py",
    "extender/kube/relists.py",
    "extender/kube/events.py",
    "extender/kube/fence.py",
    "extender/kube/sources.py",
    "extender/service/app.py",
)

WIRE: Final = (
    "under the Api that the simulation puts in its place, whose calls are killed in each phase "
    "instead"
)
LISTENER: Final = "between a socket and its handler; the simulation calls the handlers"
ASKED: Final = "answers whoever looks or asks, from memory, and writes nothing"
SAID_AGAIN: Final = (
    "its one write is what an adapter says, compared with what it is about, and nothing remembers "
    "it but the pod; an adapter without an answer says it again"
)
TOOL: Final = "part of a command, which is not the service and holds nothing that has to last"
NOT_CHECKED: Final[Mapping[str, str]] = {
    "extender/kube/access.py": WIRE,
    "extender/kube/serving/bodies.py": LISTENER,
    "extender/kube/serving/browsers.py": LISTENER,
    "extender/kube/budget.py": WIRE,
    "extender/kube/client.py": WIRE,
    "extender/kube/connection.py": WIRE,
    "extender/kube/ratelimit.py": WIRE,
    "extender/kube/read_only.py": "its reads are the Api's own; nothing is read through it where "
    "something is written",
    "extender/kube/serving/readers.py": ASKED,
    "extender/kube/serving/listener.py": LISTENER,
    "extender/kube/serving/tls.py": "looks at files of certificates beside everything else",
    "extender/kube/serving/sockets.py": LISTENER,
    "extender/kube/token_review.py": ASKED,
    "extender/kube/tokens.py": "a program of its own; its writes are files, and a token that is "
    "lost is made anew",
    "extender/kube/transport.py": WIRE,
    "extender/service/garbage.py": "tells the collector what to leave alone; where it stops "
    "nothing is missing",
    "extender/service/http/adapters/acknowledge.py": SAID_AGAIN,
    "extender/service/http/adapters/callers.py": LISTENER,
    "extender/service/http/adapters/server.py": LISTENER,
    "extender/service/http/adapters/assignments.py": ASKED,
    "extender/service/http/callers.py": LISTENER,
    "extender/service/http/adapters/streams.py": ASKED,
    "extender/service/http/adapters/placements.py": ASKED,
    "extender/service/http/pods_listener.py": LISTENER,
    "extender/service/pools/acknowledgements.py": SAID_AGAIN,
    "extender/service/http/load.py": "keeps reports in memory, and writes nothing",
    "extender/service/http/decision_log.py": ASKED,
    "extender/service/watching/first_lists.py": "tells in the log how far the first lists are, "
    "beside the service, which waits for them itself",
    "extender/service/http/recording_buffer.py": ASKED,
    "extender/service/http/overload.py": "reads a body before its verb begins, and waits for the "
    "last verb at a stop; no verb waits in it",
    "extender/service/http/overview.py": ASKED,
    "extender/service/http/page/facts.py": ASKED,
    "extender/service/http/page/history.py": "samples for a page, in memory only",
    "extender/service/http/page/routes.py": ASKED,
    "extender/service/http/page/stream.py": ASKED,
    "extender/service/http/process_metrics.py": "measures the event loop beside everything else",
    "extender/service/http/pool_gauges.py": "measures for how long vreplicas are not served",
    "extender/service/http/questions.py": ASKED,
    "extender/service/reloading.py": "looks at files of settings beside everything else; new ones "
    "are taken without an await",
    "extender/service/http/schedule_server.py": LISTENER,
    "extender/service/http/server.py": LISTENER,
    "extender/service/http/verb_handlers.py": LISTENER,
    "extender/service/pools/load_polling.py": "asks another server, keeps what it says in "
    "memory, and writes nothing",
    "extender/service/pools/prometheus.py": "reads from another server than the API server, and "
    "holds nothing",
    "extender/service/shadow.py": "shadow mode, which writes nothing",
    "extender/service/watching/observer.py": TOOL,
}
"""Module -> why nobody has to be killed at its awaits."""


def watched() -> Iterator[str]:
    """Every module whose suspensions are watched, as a path from the root."""
    for start in WATCHED:
        for path in (
            [ROOT / start] if start.endswith(".py") else sorted((ROOT / start).rglob("*.py"))
        ):
            yield path.relative_to(ROOT).as_posix()
