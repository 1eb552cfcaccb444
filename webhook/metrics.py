"""The webhook's metrics. Labels are closed sets (paths, results, kinds), never text of a review."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from extender.kube.reflector import Reflector
from extender.telemetry.exposition import Exposition, Label, Stability
from webhook.caches import WebhookCaches

PREFIX: Final = "vreplica_webhook"
PATH_VALUES: Final = ("/mutate", "/validate", "/evict")
RESULT_VALUES: Final = ("allowed", "patched", "denied", "refused")
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics(Exposition):
    """The metrics of one server."""

    def __init__(self, caches: WebhookCaches) -> None:
        super().__init__(PREFIX)
        path = Label("path", PATH_VALUES)
        self.duration = self.add_histogram(
            "request_duration_seconds",
            "Time to answer a review, from its last byte to the answer",
            _BUCKETS_S,
            [path],
            stability=Stability.BETA,
            like="controller_runtime_webhook_latency_seconds",
        )
        self.requests = self.add_counter(
            "requests",
            "Requests by path and result; refused: no AdmissionReview",
            [path, Label("result", RESULT_VALUES)],
            stability=Stability.BETA,
            like="controller_runtime_webhook_requests_total",
        )
        kind = Label("kind", tuple(resource.kind for resource in caches.sinks))
        self.gauge(
            "cache_objects",
            "Objects in a cache",
            kind,
            lambda: {
                resource.kind: float(len(cache.objects)) for resource, cache in caches.sinks.items()
            },
        )
        self.gauge(
            "cache_unreadable_objects",
            "Objects whose newest version cannot be decoded",
            kind,
            lambda: {
                resource.kind: float(cache.undecodable) for resource, cache in caches.sinks.items()
            },
        )
        self.gauge(
            "caches_synced",
            "1 once every cache has had its first list",
            None,
            lambda: float(caches.synced),
            stability=Stability.BETA,
        )

    def add_reflectors(self, reflectors: Sequence[Reflector]) -> None:
        """Add how long nothing has been heard of what the answers depend on."""
        self.gauge(
            "reflector_silence_seconds",
            "Since the last list, event or bookmark; an API server sends a bookmark a minute",
            Label("resource", tuple(one.resource.plural for one in reflectors)),
            lambda: {one.resource.plural: one.silence_s for one in reflectors},
        )

    def add_upkeep(
        self, expiry: Callable[[], Mapping[str, float]], failures: Callable[[], int]
    ) -> None:
        """Add when certificates end (epoch seconds by their use), and how often their upkeep
        failed.
        """
        self.gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate in use ends, by what it is for: serving, or the authority that "
            "signs",
            Label("certificate", ("serving", "authority")),
            expiry,
        )
        self.counter(
            "upkeep_failures",
            "Rounds of looking after certificates and registration that found something not right",
            None,
            lambda: float(failures()),
        )
