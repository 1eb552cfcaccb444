"""Every fault of network and API server by name, with the unit of its probability and the highest
rate.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from extender.engine.policy.profile_document import camel


@dataclass(frozen=True, slots=True)
class FaultKind:
    """``name`` is the name in profiles. ``per`` is the unit of which the rate is a probability.
    ``most`` is the highest rate that seeds draw.
    """

    name: str
    per: str
    most: float
    what: str


def _kind(per: str, most: float, what: str) -> Any:
    return field(default=0.0, metadata={"per": per, "most": most, "what": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Probabilities from 0 to 1, and two delays in seconds."""

    conflict: float = _kind("write", 0.05, "a write is answered 409 and has no effect")
    invalid: float = _kind("write", 0.03, "a write is answered 422 and has no effect")
    too_many_requests: float = _kind("call", 0.05, "a call is answered 429 with Retry-After")
    internal_error: float = _kind("call", 0.03, "a call is answered 500 and has no effect")
    unavailable: float = _kind("call", 0.03, "a call is answered 503 and has no effect")
    connection_reset: float = _kind("call", 0.1, "the connection is reset before a call arrives")
    slow: float = _kind("call", 0.1, "a call or an event takes up to slowMaxS seconds, both ways")
    write_late: float = _kind(
        "write", 0.03, "the caller gives up, and its write is served seconds later"
    )
    partition: float = _kind(
        "call", 0.003, "from this call on a process reaches no API server for seconds"
    )
    patch_reply_lost: float = _kind(
        "write", 0.15, "a patch (of a ledger) is done, and its answer is lost"
    )
    status_reply_lost: float = _kind("write", 0.15, "a status is written, and the answer is lost")
    bind_reply_lost: float = _kind("write", 0.15, "a Binding is done, and its answer is lost")
    scale_reply_lost: float = _kind("write", 0.2, "a scale is written, and the answer is lost")
    lease_reply_lost: float = _kind("write", 0.1, "a Lease is written, and the answer is lost")
    reply_lost: float = _kind("call", 0.1, "any other call is served, and its answer is lost")
    stale_list: float = _kind(
        "list", 0.5, "the first list of a process comes from a cache seconds old"
    )
    watch_dropped: float = _kind(
        "event", 0.03, "a watch ends instead of an event, which the next watch tells"
    )
    watch_expired: float = _kind("event", 0.02, "a watch ends with 410 Expired")
    watch_hung: float = _kind(
        "event", 0.003, "a watch falls silent, bookmarks included, until it is given up"
    )
    bookmarks_only: float = _kind(
        "event", 0.02, "events are held back for seconds while bookmarks come"
    )
    event_delayed: float = _kind(
        "event", 0.05, "an event is late, and other kinds' events overtake it"
    )
    event_doubled: float = _kind("event", 0.1, "an event is told twice")
    extender_call_lost: float = _kind(
        "extender call", 0.1, "a call of kube-scheduler does not arrive"
    )
    filter_reply_lost: float = _kind(
        "extender call", 0.1, "filter is served, and the answer is lost"
    )
    bind_answer_lost: float = _kind(
        "extender call", 0.15, "bind is served, and kube-scheduler never knows"
    )
    filter_repeated: float = _kind(
        "extender call", 0.3, "filter is sent twice, and the second answer counts"
    )
    filter_one_node: float = _kind(
        "extender call", 0.2, "filter comes first with one (nominated) node only"
    )
    filter_unknown_node: float = _kind(
        "extender call", 0.1, "filter comes first with a node nobody has heard of"
    )
    prioritize_lost: float = _kind("extender call", 0.2, "prioritize is not answered")
    bind_repeated: float = _kind(
        "extender call", 0.3, "bind is sent twice, and the second answer counts"
    )
    bind_late: float = _kind(
        "extender call", 0.1, "bind arrives when kube-scheduler has forgotten the pod"
    )
    bind_unknown_node: float = _kind(
        "extender call", 0.1, "before bind comes one to a node that does not exist"
    )
    bind_stale_uid: float = _kind(
        "extender call", 0.1, "before bind comes one for the pod's former UID"
    )
    webhook_bypassed: float = _kind(
        "review", 0.5, "the API server cannot reach the webhook and goes on"
    )
    webhook_slow: float = _kind("review", 0.2, "the webhook takes seconds")
    schedule_answer_lost: float = _kind(
        "schedule call",
        0.15,
        "a request to /v1/schedule is carried out, and its caller never knows",
    )
    schedule_repeated: float = _kind(
        "schedule call",
        0.3,
        "a request to /v1/schedule is sent twice, and the second answer counts",
    )
    schedule_elsewhere: float = _kind(
        "schedule call",
        0.3,
        "a caller of /v1/schedule asks another replica than the one that it knows to lead",
    )
    load_query_fails: float = _kind(
        "load query", 0.3, "a Prometheus answers with an error, or with what cannot be read"
    )
    load_query_empty: float = _kind("load query", 0.3, "a Prometheus answers without any series")
    load_query_hangs: float = _kind("load query", 0.3, "a Prometheus takes longer than it may")
    delay_mean_s: float = 0.002
    slow_max_s: float = 3.0

    def with_rates(self, rates: Mapping[str, float]) -> Self:
        """Return rates with some changed, by the names of ``KINDS``. Raises KeyError."""
        return replace(self, **{_FIELD_NAMES[name]: rate for name, rate in rates.items()})


_FIELD_NAMES: Final = {camel(item.name): item.name for item in fields(FaultRates)}
"""Name in profiles -> field, for the two delays too."""
KINDS: Final = tuple(
    FaultKind(camel(item.name), item.metadata["per"], item.metadata["most"], item.metadata["what"])
    for item in fields(FaultRates)
    if item.metadata
)
CALM: Final = FaultRates()


def named(counts: Mapping[str, int]) -> Counter[str]:
    """Convert counts to the names of ``KINDS``."""
    return Counter({camel(kind): count for kind, count in counts.items()})
