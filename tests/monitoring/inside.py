"""Dashboards of how the service works inside: verbs and latency, reliability."""

from tests.monitoring.grafana import Dashboard, Panel, Query, Row
from tests.monitoring.queries import RATE, S, W, largest, quantiles, rate, total

VERBS = Dashboard(
    uid="vreplica-verbs",
    title="vreplica-scheduler / Verbs and latency",
    description="What kube-scheduler asks, how fast it is answered, and what writing takes.",
    variables={
        "verb": (f"{S}_framework_extension_point_duration_seconds_count", "extension_point")
    },
    rows=(
        Row(
            "Asked by kube-scheduler",
            (
                Panel(
                    title="requests a second",
                    unit="reqps",
                    queries=(
                        rate(
                            f"{S}_framework_extension_point_duration_seconds_count",
                            "extension_point",
                            'extension_point=~"$verb"',
                        ),
                    ),
                    description="By verb, over all replicas.",
                ),
                Panel(
                    title="time to answer",
                    unit="s",
                    queries=quantiles(
                        f"{S}_framework_extension_point_duration_seconds",
                        by="extension_point",
                        where='extension_point=~"$verb"',
                    ),
                    description="bind and schedule write to the API server; the others do not.",
                ),
                Panel(
                    title="errors",
                    unit="percentunit",
                    queries=(
                        Query(
                            f"sum by (extension_point) "
                            f"(rate({S}_framework_extension_point_duration_seconds_count"
                            f'{{status="Error"}}[{RATE}]))'
                            f" / sum by (extension_point) "
                            f"(rate({S}_framework_extension_point_duration_seconds_count[{RATE}]))",
                            "{{extension_point}}",
                        ),
                    ),
                    description="kube-scheduler tries again; a pod waits meanwhile.",
                    thresholds=((0.05, "red"),),
                ),
                Panel(
                    title="in flight",
                    queries=(total(f"{S}_requests_in_flight", "verb"),),
                    description="Requests being answered now.",
                ),
                Panel(
                    title="turned away a second",
                    unit="reqps",
                    queries=(rate(f"{S}_requests_turned_away_total", "verb"),),
                    description="503, for being too many at once.",
                ),
                Panel(
                    title="connections cut a second",
                    unit="ops",
                    queries=(rate(f"{S}_connections_cut_total", "reason"),),
                    description="Slow or too many: not kube-scheduler, mostly.",
                ),
            ),
        ),
        Row(
            "Asked by the API server",
            (
                Panel(
                    title="reviews a second",
                    unit="reqps",
                    queries=(rate(f"{W}_requests_total", "result"),),
                    description="Of the webhook; refused: it was no AdmissionReview, or came too "
                    "slowly.",
                ),
                Panel(
                    title="time to answer a review",
                    unit="s",
                    queries=quantiles(f"{W}_request_duration_seconds", by="path"),
                    description="From its last byte; the API server gives up after 3 s.",
                ),
                Panel(
                    title="webhooks that have their caches",
                    queries=(Query(f"sum({W}_caches_synced)"),),
                    description="Of those that are scraped.",
                ),
            ),
        ),
        Row(
            "Placing",
            (
                Panel(
                    title="a batch, decided and written",
                    unit="s",
                    queries=quantiles(f"{S}_scheduling_attempt_duration_seconds"),
                    description="Most of it is the API server.",
                ),
                Panel(
                    title="a batch, decided",
                    unit="s",
                    queries=quantiles(f"{S}_scheduling_algorithm_duration_seconds"),
                    description="The engine alone.",
                ),
                Panel(
                    title="attempts that it takes",
                    queries=quantiles(f"{S}_vpod_scheduling_attempts"),
                    description="More than one: there was no room, or a write failed.",
                ),
            ),
        ),
        Row(
            "The API server",
            (
                Panel(
                    title="time to answer us",
                    unit="s",
                    queries=quantiles(f"{S}_rest_client_request_duration_seconds", by="lane"),
                    description="From sending to the beginning of the answer.",
                ),
                Panel(
                    title="waiting in our own lanes",
                    unit="s",
                    queries=(rate(f"{S}_api_wait_seconds_total", "lane"),),
                    description="Seconds waited a second: over 1, more than one request always "
                    "waits. Raise clientConnection.qps.",
                ),
                Panel(
                    title="requests that wait in our own lanes",
                    queries=(largest(f"{S}_api_waiting", "lane"),),
                    description="Now, of the replica with the most.",
                ),
                Panel(
                    title="answers that are no 2xx",
                    unit="reqps",
                    queries=(rate(f"{S}_rest_client_requests_total", "code", 'code!~"2.."'),),
                    description="409 and 422 are compare-and-swaps that were lost, and no error.",
                ),
            ),
        ),
    ),
)

RELIABILITY = Dashboard(
    uid="vreplica-reliability",
    title="vreplica-scheduler / Reliability",
    description="Leaders, caches, repairs, and what the process takes.",
    rows=(
        Row(
            "Leading",
            (
                Panel(
                    title="who leads",
                    queries=(
                        Query(
                            f"max by (instance, name) ({S}_leader_election_master_status)",
                            "{{instance}} {{name}}",
                        ),
                    ),
                    description="1 while a replica leads by a Lease.",
                ),
                Panel(
                    title="changes of leader an hour",
                    queries=(rate(f"{S}_leader_election_transitions_total", "name", in_s=3600),),
                    description="A rollout is one or two.",
                ),
                Panel(
                    title="Leases that could not be read or written",
                    unit="ops",
                    queries=(rate(f"{S}_leader_election_errors_total", "name"),),
                    description="10 s of them and the leader stops.",
                ),
            ),
        ),
        Row(
            "Kept promises",
            (
                Panel(
                    title="repairs a minute",
                    queries=(rate(f"{S}_repairs_total", "kind", in_s=60),),
                    description="What somebody else, or a crash, has left; PodReactivated is "
                    "everyday.",
                ),
                Panel(
                    title="lost compare-and-swaps a second",
                    unit="ops",
                    queries=(rate(f"{S}_ledger_conflicts_total"),),
                    description="Two writers of one ledger; the API server said no to one of them.",
                ),
                Panel(
                    title="overcommitted pods",
                    queries=(Query(f"max({S}_overcommitted_pods)"),),
                    description="See the overview.",
                    thresholds=((1, "red"),),
                ),
            ),
        ),
        Row(
            "Caches",
            (
                Panel(
                    title="silence of the watches",
                    unit="s",
                    queries=(
                        largest(f"{S}_reflector_silence_seconds", "resource"),
                        Query(
                            f"max by (resource) ({W}_reflector_silence_seconds)",
                            "the webhook's {{resource}}",
                        ),
                    ),
                    description="A bookmark comes once a minute; at 150 s a watch is given up and "
                    "begun again.",
                    thresholds=((180, "red"),),
                ),
                Panel(
                    title="lists and errors an hour",
                    queries=(
                        Query(
                            f"3600 * sum by (resource) (rate({S}_reflector_lists_total[{RATE}]))",
                            "lists {{resource}}",
                        ),
                        Query(
                            f"3600 * sum by (resource) (rate({S}_reflector_errors_total[{RATE}]))",
                            "errors {{resource}}",
                        ),
                    ),
                    description="A list after the first one: a watch had to begin anew.",
                ),
                Panel(
                    title="foreign kinds that cannot be listed",
                    queries=(largest(f"{S}_source_unavailable", "source"),),
                    description="1 while the API server does not serve it, or forbids it.",
                    thresholds=((1, "red"),),
                ),
                Panel(
                    title="objects",
                    queries=(largest(f"{S}_cache_size", "type"),),
                    description="In the caches.",
                ),
            ),
        ),
        Row(
            "What runs out",
            (
                Panel(
                    title="time until a certificate ends",
                    unit="s",
                    width=12,
                    queries=(
                        Query(
                            f"min by (certificate) ({S}_certificate_expiry_timestamp_seconds - "
                            f"time())",
                            "service {{certificate}}",
                        ),
                        Query(
                            f"max by (client) ({S}_client_certificate_expiry_timestamp_seconds - "
                            f"time())",
                            "client {{client}}",
                        ),
                        Query(
                            f"min by (certificate) ({W}_certificate_expiry_timestamp_seconds - "
                            f"time())",
                            "webhook {{certificate}}",
                        ),
                    ),
                    description="The webhook renews its own 30 days before the end of the serving "
                    "one.",
                ),
                Panel(
                    title="configuration file",
                    width=12,
                    queries=(
                        Query(f"min({S}_config_last_reload_successful)", "can be used"),
                        Query(
                            f"sum by (setting) ({S}_config_needs_restart)",
                            "needs a restart: {{setting}}",
                        ),
                    ),
                    description="0: the file as it is now cannot be used; replicas go on with the "
                    "old one.",
                ),
            ),
        ),
        Row(
            "The process",
            (
                Panel(
                    title="lag of the event loop",
                    unit="s",
                    queries=quantiles(f"{S}_event_loop_lag_seconds", by="instance"),
                    description="By how much a timer was late: everything else was, too.",
                    thresholds=((0.5, "red"),),
                ),
                Panel(
                    title="memory",
                    unit="bytes",
                    queries=(
                        Query(
                            f"process_resident_memory_bytes and on (instance, job) {S}_build_info",
                            "{{instance}}",
                        ),
                    ),
                    description="Resident.",
                ),
                Panel(
                    title="processor",
                    unit="percentunit",
                    queries=(
                        Query(
                            f"rate(process_cpu_seconds_total[{RATE}]) and on (instance, job) "
                            f"{S}_build_info",
                            "{{instance}}",
                        ),
                    ),
                    description="1 is a whole core; the event loop has no more than one.",
                ),
                Panel(
                    title="events lost a minute",
                    queries=(
                        Query(f"60 * sum(rate({S}_events_dropped_total[{RATE}]))", "queue full"),
                        Query(f"60 * sum(rate({S}_events_failed_total[{RATE}]))", "not taken"),
                    ),
                    description="Events only: nothing that is decided.",
                ),
                Panel(
                    title="tasks",
                    queries=(largest(f"{S}_asyncio_tasks", "instance"),),
                    description="Steadily more: a leak.",
                ),
                Panel(
                    title="versions",
                    kind="table",
                    queries=(Query(f"count by (version, python_version) ({S}_build_info)"),),
                    description="Two while an upgrade rolls out.",
                ),
            ),
        ),
    ),
)
