"""``Service``: connects all parts, and starts and stops them in order.

Every replica answers kube-scheduler, and runs the loops of ``_background`` and the event recorder.
The loops of ``_lead`` run only for pools that this replica leads. When it stops, the service
becomes unready, finishes the verbs under way, closes its sockets, ends its loops, releases its
leases and sends the remaining events, in this order.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Generator, Mapping
from typing import Final

from extender.config.load_sources import LoadSource, load_sources_of
from extender.config.model import Config, Mode
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.api import Api
from extender.kube.client import KubeApi
from extender.kube.events import EventRecorder
from extender.kube.fence import fenced_by_pool
from extender.kube.leader import new_identity
from extender.kube.read_only import ReadOnlyApi
from extender.kube.token_review import ReviewLimits, TokenReviews
from extender.model.bucket import Bucket
from extender.model.objects import AdapterPool
from extender.service.binding.binder import SchedulerVReplicaBinder
from extender.service.binding.ordinal_history_reader import OrdinalHistoryReader
from extender.service.binding.pod_binder import PodBinder
from extender.service.binding.reactivator import Reactivator
from extender.service.binding.verbs import ExtenderVerbs
from extender.service.garbage import freeze_when_loaded
from extender.service.http.adapters.acknowledge import AcknowledgeVerb
from extender.service.http.adapters.callers import REVIEWS
from extender.service.http.adapters.server import AdapterParts, AdapterServer
from extender.service.http.answers import Answers, DescribedParts
from extender.service.http.describe import StateQuery, state_steps
from extender.service.http.gauges import MeasuredParts, add_gauges
from extender.service.http.health import Health
from extender.service.http.load import LoadVerb
from extender.service.http.map_sizes import add_map_sizes_gauge
from extender.service.http.process_metrics import LoopLag, watch_client
from extender.service.http.schedule import ScheduleVerb
from extender.service.http.schedule_server import ScheduleServer
from extender.service.http.server import ExtenderServer
from extender.service.http.verb_handlers import Verb
from extender.service.placing.committer import Committer
from extender.service.placing.decision_history import DecisionHistory
from extender.service.placing.foreign_status import ForeignStatus
from extender.service.placing.placer import Placer, Reporting
from extender.service.placing.vpod_events import VPodEvents
from extender.service.pools.acknowledgements import AcknowledgementWriter
from extender.service.pools.adapter_leases import AdapterLeases
from extender.service.pools.assignments import AssignmentWriter
from extender.service.pools.autoscaler import Autoscaler
from extender.service.pools.availability import AvailabilityTracker
from extender.service.pools.descheduler import Descheduler
from extender.service.pools.evictions import EvictionMarks
from extender.service.pools.evictor import Evictor
from extender.service.pools.leadership import Leadership
from extender.service.pools.load_polling import LoadPolling, LoadServer
from extender.service.pools.load_reports import LoadReports
from extender.service.pools.pool_status import PoolStatusWriter
from extender.service.pools.quarantine import Quarantine
from extender.service.pools.quota_status import QuotaStatusWriter
from extender.service.pools.reconciler import Reconciler
from extender.service.pools.rescheduler import Rescheduler
from extender.service.pools.rollouts import Rollouts
from extender.service.pools.unserved_shares import UnservedShares
from extender.service.reloading import Reloading, Watched, change_of_budget, change_of_log
from extender.service.shadow import Shadow
from extender.service.watching.caches import Caches
from extender.service.watching.first_lists import log_first_lists
from extender.service.watching.informers import Informers
from extender.service.watching.sources import PoolCondition
from extender.service.watching.unexpected_writes import UnexpectedWrites
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

BIND_SEEN_WITHIN_S: Final = 1.0
"""How long a bind waits at most for the watch to show it: at most a quarter of its deadline."""
CATCH_UP_MAX_S: Final = 120.0
"""For what a new leader has to read. After it the process ends, and so gives its Lease away."""
EVENTS_DRAIN_TIMEOUT_S: Final = 2.0


class Service:
    """One replica of the service over an ``Api``. ``now``: wall-clock time in epoch seconds.

    If ``serve`` is False, it opens no socket: a simulation calls ``verbs`` itself. ``profiles``:
    all profiles that a pool may name.
    """

    def __init__(  # noqa: PLR0913 (keywords)
        self,
        api: Api,
        config: Config,
        *,
        now: Callable[[], float],
        rng: random.Random,
        serve: bool = True,
        profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
        load_server: Callable[[LoadSource], LoadServer] | None = None,
    ) -> None:
        read_only = ReadOnlyApi(api) if config.mode is Mode.SHADOW else None
        self._api = api = read_only or api
        self._clock = clock = asyncio.get_running_loop().time
        self._now = now
        self._rng = rng
        self._serve = serve
        self.identity = new_identity(socket.gethostname(), rng)
        self.metrics = Metrics()
        self.caches = Caches(profiles, config.pool_namespaces)
        self.shadow = (
            Shadow(self.caches, read_only, metrics=self.metrics, clock=clock, now=now)
            if read_only
            else None
        )
        ordinal_history = OrdinalHistory(clock)
        self.informers = Informers(api, self.caches, rng=rng, ordinal_history=ordinal_history)
        self.recorder = EventRecorder(api, reporting_instance=self.identity, now=now, rng=rng)
        self.leadership = self._leadership(api, config, now, rng)
        self._fenced = fenced_by_pool(api, self.leadership.leads)
        self._vpod_events = VPodEvents(
            self.recorder, self.metrics, self.informers.sources.reference
        )
        self.binder = SchedulerVReplicaBinder(
            api,
            self.caches,
            clock=clock,
            leads=self.leadership.leads,
            narrow_to=config.narrow_to,
            seen_within_s=min(BIND_SEEN_WITHIN_S, config.server.deadline_s / 4),
        )
        self._wire_placing(config)
        self._wire_moving(config, load_server)
        ordinal_history_reader = OrdinalHistoryReader(
            self.caches,
            ordinal_history,
            relist_all_vpods=self.informers.relist_all_vpods,
            never_led_by_others=self.leadership.never_led_by_others,
        )
        self._wire_pools(ordinal_history_reader)
        self._wire_verbs(config, ordinal_history_reader)
        self.reloading: Reloading | None = None
        self._reviews: list[TokenReviews] = []
        """Of the listeners that controllers and adapters call."""
        self.availability = AvailabilityTracker(
            self.caches,
            feed=self.placer.queues.add,
            leads=self.leadership.leads,
            clock=clock,
        )
        self.unserved_shares = UnservedShares(
            self.caches,
            self.committer.hand_overs.views,
            on_change=self.availability.look_again_at,
            clock=clock,
        )
        self._wire_http(config)
        self._connect()
        self._add_gauges(ordinal_history)

    # -- wiring: what each part receives, and which others it calls --------------------------------

    def _leadership(
        self, api: Api, config: Config, now: Callable[[], float], rng: random.Random
    ) -> Leadership:
        return Leadership(
            api,
            self.caches,
            config,
            identity=self.identity,
            first_version=lambda: self.informers.first_version,
            now=now,
            rng=rng,
        )

    def _wire_placing(self, config: Config) -> None:
        """The parts that place vpods, write ledgers and statuses, and scale pools."""
        self.committer = committer = Committer(
            self._api,
            self.caches,
            clock=self._clock,
            now=self._now,
            leadership=self.leadership,
            lists=self.informers,
            write_foreign_status=ForeignStatus(self.informers.sources.status_place),
            vpod_events=self._vpod_events,
            metrics=self.metrics,
        )
        self.autoscaler = Autoscaler(
            self._api,
            self.caches,
            fenced=self._fenced,
            recorder=self.recorder,
            metrics=self.metrics,
            rng=self._rng,
            no_predecessor_writes=self.leadership.no_predecessor_writes,
            scale_cache=config.scale_cache,
        )
        self.placer = Placer(
            self.caches,
            committer,
            self.autoscaler,
            reporting=Reporting(
                self._vpod_events, DecisionHistory(self.identity, self._now), self.metrics
            ),
            clock=self._clock,
        )

    def _wire_moving(
        self, config: Config, load_server: Callable[[LoadSource], LoadServer] | None
    ) -> None:
        """The parts that move vreplicas that have a place."""
        self.load_reports = LoadReports(self._clock)
        self.load_polling = LoadPolling(
            self.caches,
            self.load_reports,
            load_sources_of(config.load_sources),
            rng=self._rng,
            server=load_server,
        )
        self.evictor = Evictor(
            self.caches,
            self.placer,
            self.autoscaler,
            vpod_events=self._vpod_events,
            metrics=self.metrics,
            now=self._now,
            load=self.load_reports,
        )
        self.descheduler = Descheduler(
            self.caches,
            fenced=self._fenced,
            recorder=self.recorder,
            metrics=self.metrics,
            now=self._now,
        )
        self.eviction_marks = EvictionMarks(self.caches, self._clock)
        self.rollouts = Rollouts(
            self.caches,
            self.autoscaler,
            fenced=self._fenced,
            recorder=self.recorder,
            metrics=self.metrics,
            now=self._now,
            marks=self.eviction_marks,
        )
        self.rescheduler = Rescheduler(
            self.caches, activate=self.placer.activation.add_all, recorder=self.recorder
        )

    def _wire_pools(self, ordinal_history_reader: OrdinalHistoryReader) -> None:
        """The parts that repair pods and pools and report on them."""
        unexpected_writes = UnexpectedWrites(
            self.caches, self.committer.own_writes, recorder=self.recorder, metrics=self.metrics
        )
        self.reconciler = Reconciler(
            self._fenced,
            self.caches,
            self.placer.queues,
            unexpected_writes=unexpected_writes,
            metrics=self.metrics,
            clock=self._clock,
            marks=self.eviction_marks,
            on_expiry=[ordinal_history_reader.forget_gone, self.committer.forget_gone],
        )
        self.assignments = AssignmentWriter(
            self.caches,
            fenced=self._fenced,
            hand_overs=self.committer.hand_overs,
            recorder=self.recorder,
            seen_version=lambda: self.informers.pods_seen_version,
            rng=self._rng,
        )
        self.adapter_leases = AdapterLeases(
            self.caches,
            fenced=self._fenced,
            recorder=self.recorder,
            clock=self._clock,
            now=self._now,
        )
        self.reactivator = Reactivator(
            self._api, self.caches, metrics=self.metrics, leads=self.leadership.leads
        )
        self.quota_status = QuotaStatusWriter(self.caches, fenced=self._fenced, now=self._now)
        self.quarantine = Quarantine(
            self.caches, fenced=self._fenced, recorder=self.recorder, now=self._now
        )
        self.pool_status = PoolStatusWriter(
            self._api,
            self.caches,
            fenced=self._fenced,
            recorder=self.recorder,
            now=self._now,
            more_conditions=self._more_conditions,
            foreign=lambda: self.autoscaler.foreign,
            desired=lambda: self.autoscaler.desired,
            refused=lambda: self.autoscaler.refused,
            load=self.load_reports.summary,
        )

    def _connect(self) -> None:
        """The calls between parts that their constructors cannot receive. Two more are made there:
        ``Placer`` sets ``HandOvers.decide``, and ``AssignmentWriter`` sets
        ``HandOvers.request_assignment``.
        """
        self.leadership.another_has_led = self.placer.forget
        self.autoscaler.on_opened = self.placer.queues.activate
        self.autoscaler.on_closed = self.autoscaler.on_waiting = self.evictor.trigger
        self.informers.sources.on_complete = self.placer.activation.add_all
        self.placer.external_vpods.on_changed = self.assignments.vpod_changed

    def _more_conditions(self, pool: AdapterPool) -> list[PoolCondition]:
        """The conditions of a pool that other parts than ``PoolStatusWriter`` decide."""
        some = (
            self.descheduler.condition(pool.key),
            self.rollouts.condition(pool.key),
            self.load_polling.condition(pool),
        )
        return [
            *(condition for condition in some if condition is not None),
            *self.informers.sources.conditions(pool),
        ]

    def _wire_verbs(self, config: Config, ordinal_history_reader: OrdinalHistoryReader) -> None:
        """The parts that answer kube-scheduler, on every replica."""
        self.pod_binder = PodBinder(
            self._api,
            self.caches,
            self.binder,
            knows_past=ordinal_history_reader.known,
            on_bound=self.committer.ledger_confirmations.changed,
            scheduler_names=config.scheduler_names,
        )
        self.verbs = ExtenderVerbs(
            self.caches,
            self.binder,
            self.pod_binder,
            reactivator=self.reactivator,
            recorder=self.recorder,
            metrics=self.metrics,
        )

    def _wire_http(self, config: Config) -> None:
        """The servers, and the parts that answer people's questions."""
        self.health = Health(self._not_ready)
        self.answers = Answers(
            DescribedParts(
                self.caches,
                self.placer,
                self.leadership,
                self.health,
                self.metrics,
                self.load_reports,
                self.committer.hand_overs,
            ),
            config,
            now=self._now,
        )
        schedule, load_verb = self.schedule_verb().schedule, self.load_verb()
        take_load = load_verb.take
        self.server = ExtenderServer(
            config.server,
            self.verbs,
            health=self.health,
            metrics=self.metrics,
            state_steps=self.state_steps,
            schedule=schedule,
            load=take_load,
            questions=self.answers.routes,
        )
        self.schedule_server = (
            self._schedule_server(config, schedule, take_load) if config.schedule.port else None
        )
        self.adapter_server = (
            self._adapter_server(config, load_verb) if config.adapters.port else None
        )
        if self._reviews:
            self.metrics.counter(
                "token_reviews",
                "TokenReviews sent to the API server",
                None,
                lambda: float(sum(reviews.sent for reviews in self._reviews)),
            )

    def _schedule_server(self, config: Config, schedule: Verb, load: Verb) -> ScheduleServer:
        """The listener for controllers. Both listeners share ``schedule`` and its limit."""
        server = ScheduleServer(
            config,
            schedule,
            load=load,
            state_steps=lambda query: state_steps(
                self.caches.state, self.placer.history.explanation, query
            ),
            reviews=self._token_reviews(config.schedule.audience),
            health=self.health,
            metrics=self.metrics,
        )
        self.server.more_expiry.append(server.listener.expiry)
        return server

    def _adapter_server(self, config: Config, load_verb: LoadVerb) -> AdapterServer:
        """The listener for adapters."""
        server = AdapterServer(
            config,
            AdapterParts(
                caches=self.caches,
                acknowledge=self.acknowledge_verb(load_verb),
                reviews=self._token_reviews(config.adapters.audience, REVIEWS),
                routable=self.committer.hand_overs.routable,
                told_indexes=self.committer.hand_overs.indexed.told,
                seen_version=self.informers.vpods_seen_version,
                health=self.health,
                rng=self._rng,
            ),
            self.metrics,
        )
        self.server.more_expiry.append(server.listener.expiry)
        return server

    def _token_reviews(self, audience: str, limits: ReviewLimits | None = None) -> TokenReviews:
        reviews = TokenReviews(self._api, audience=audience, clock=self._clock, limits=limits)
        self._reviews.append(reviews)
        return reviews

    def leading(self) -> bool:
        """Whether this replica may act as leader of any pool now; in shadow mode, never."""
        return self.leadership.leading()

    def _add_gauges(self, ordinal_history: OrdinalHistory) -> None:
        self.unserved_time = add_gauges(
            self.metrics,
            MeasuredParts(
                caches=self.caches,
                queues=self.placer.queues,
                history=self.placer.history,
                informers=self.informers,
                recorder=self.recorder,
                leadership=self.leadership,
                binder=self.binder,
                load=self.load_reports,
                load_polling=self.load_polling,
                unserved_shares=self.unserved_shares,
            ),
            self._clock,
        )
        add_map_sizes_gauge(
            self.metrics,
            self.caches.state,
            queues=self.placer.queues,
            activation=self.placer.activation,
            sources=self.informers.sources,
            own_writes=self.committer.own_writes,
            ordinal_history=ordinal_history,
            load=self.load_reports,
            hand_overs=self.committer.hand_overs,
            quarantine=self.quarantine,
        )

    def reconfigure(self, config: Config) -> None:
        """Apply the settings of ``config`` that can change without a restart (``Reload.LIVE``)."""
        self.server.reconfigure(config.server)
        if self.schedule_server is not None:
            self.schedule_server.reconfigure(config)
        if self.adapter_server is not None:
            self.adapter_server.reconfigure(config)
        self.autoscaler.scales.reconfigure(config.scale_cache)
        self.binder.narrow_to = config.narrow_to
        self.pod_binder.scheduler_names = config.scheduler_names

    async def run(self) -> None:
        """Serve, and work while leading, until cancelled. Then stop in order."""
        if self._serve:
            await self.server.start()
            log.info("%s serves on %s", self.identity, self.server.url)
            if self.schedule_server is not None:
                await self.schedule_server.start()
            if self.adapter_server is not None:
                await self.adapter_server.start()
        recording = asyncio.create_task(self.recorder.run(), name="event recorder")
        background = asyncio.create_task(self._background(), name="background")
        try:
            # Either task ends only by an error. The service then stops too, because a service that
            # runs in part looks healthy and is not.
            ended, _ = await asyncio.wait(
                {background, recording}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
        finally:
            self.health.stopping = True
            await self.server.stop()
            if self.schedule_server is not None:
                await self.schedule_server.stop()
            if self.adapter_server is not None:
                await self.adapter_server.stop()
            self.answers.close()
            await _end(background)
            await self.recorder.drain(EVENTS_DRAIN_TIMEOUT_S)
            await _end(recording)

    async def _background(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informers.run(), name="informers")
            if self._serve:
                tasks.create_task(self.answers.page.run(self.informers.wait_synced), name="page")
            await self.informers.wait_synced()
            tasks.create_task(self.availability.run(), name="availability")
            tasks.create_task(self.unserved_shares.run(), name="unserved shares")
            tasks.create_task(self.unserved_time.run(), name="unserved time")
            tasks.create_task(self.reconciler.run_expiry(), name="reservation expiry")
            if self.shadow is not None:
                await self.shadow.run()  # does not return: nothing below runs in shadow mode
            tasks.create_task(self.reactivator.run(), name="reactivator")
            tasks.create_task(self.rescheduler.watch(), name="absences")
            tasks.create_task(self.leadership.run(self._lead), name="leader election")

    async def _lead(self, bucket: Bucket) -> None:
        """Lead ``bucket`` until cancelled, after this replica has seen all that former leaders
        wrote.
        """
        if self.leadership.electors:
            # Else a replica that renews its Lease and cannot list would keep it, and nobody led.
            async with asyncio.timeout(CATCH_UP_MAX_S):
                await self.informers.catch_up()
        self.autoscaler.take_over(bucket)
        self.leadership.began(bucket)
        lease = self.leadership.lease_name(bucket)
        log.info("%s leads by %s", self.identity, lease, extra={"lease": lease})
        self.metrics.leader.labels(lease).set(1)
        try:
            async with asyncio.TaskGroup() as tasks:
                # The placer starts first: its first batch is decided before the autoscaler computes
                # the size of the pool.
                tasks.create_task(self.placer.run(bucket), name="placer")
                tasks.create_task(self.autoscaler.run(bucket), name="autoscaler")
                tasks.create_task(self.evictor.run(bucket), name="evictor")
                tasks.create_task(self.load_polling.run(bucket), name="load polling")
                tasks.create_task(self.rescheduler.run(bucket), name="rescheduler")
                tasks.create_task(self.descheduler.run(bucket), name="descheduler")
                tasks.create_task(self.rollouts.run(bucket), name="rollouts")
                tasks.create_task(self.reconciler.run(bucket), name="reconciler")
                tasks.create_task(self.assignments.run(bucket), name="assignments")
                tasks.create_task(self.adapter_leases.run(bucket), name="adapter leases")
                tasks.create_task(self.pool_status.run(bucket), name="pool status")
                tasks.create_task(self.quota_status.run(bucket), name="quota status")
                tasks.create_task(self.quarantine.run(bucket), name="quarantine")
        finally:
            self.leadership.ended(bucket)
            self.metrics.leader.labels(lease).set(0)

    def schedule_verb(self) -> ScheduleVerb:
        """Return the handler of ``POST /v1/schedule``."""
        return ScheduleVerb(
            self.caches,
            self.placer,
            self.informers.sources,
            leadership=self.leadership,
        )

    def load_verb(self) -> LoadVerb:
        """Return the handler of ``POST /v1/load``."""
        return LoadVerb(self.caches, self.load_reports, leadership=self.leadership)

    def acknowledge_verb(self, load_verb: LoadVerb) -> AcknowledgeVerb:
        """Return the handler of ``POST /v1/acknowledge``."""
        writer = AcknowledgementWriter(self._api, self.caches)
        return AcknowledgeVerb(self.caches, writer, self.adapter_leases, load_verb)

    def _not_ready(self) -> list[str]:
        missing = self.informers.not_synced()
        if not missing:
            return []
        return [f"caches not synced: {', '.join(missing)}", *self.informers.problems()]

    def state_steps(self, query: StateQuery) -> Generator[None, None, dict[str, object]]:
        """The content of ``/state.json``, computed in steps."""
        explanation_of = self.placer.history.explanation
        state = yield from state_steps(self.caches.state, explanation_of, query)
        return {
            "identity": self.identity,
            "leader": self.leadership.leader(""),
            "leading": self.leading(),
            "leases": self.leadership.describe(),
            "requests": dict(self.server.requests),
            "queues": self.placer.queues.sizes(),
            **({"configuration": self.reloading.describe()} if self.reloading is not None else {}),
            **({"shadow": self.shadow.describe()} if self.shadow is not None else {}),
            **state,
        }


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait until it ends. The caller already has any error of the task."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("%s ended with %r", task.get_name(), error)


async def serve(
    config: Config,
    *,
    now: Callable[[], float],
    rng: random.Random,
    profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
    watched: Watched | None = None,
) -> int:
    """Run one replica against the cluster that the configuration names, until cancelled.

    ``watched``: the file of ``config``, to reload when it changes. None: the configuration stays.
    """
    client = config.client_connection
    async with await KubeApi.connect(
        kubeconfig=client.kubeconfig, context=client.context, qps=client.qps, burst=client.burst
    ) as api:
        service = Service(api, config, now=now, rng=rng, profiles=profiles)
        service.metrics.add_process()
        watch_client(service.metrics, api)
        # An error in any task stops the service in order and is logged with its traceback.
        async with asyncio.TaskGroup() as beside:
            tasks = [
                beside.create_task(
                    freeze_when_loaded(log_first_lists(service.informers)), name="first lists"
                ),
                beside.create_task(LoopLag(service.metrics).run(), name="event loop lag"),
            ]
            if watched is not None:
                apply = [service.reconfigure, change_of_budget(api.budget), change_of_log(config)]
                service.reloading = Reloading(watched, apply=apply, metrics=service.metrics)
                tasks.append(
                    beside.create_task(service.reloading.run(), name="configuration reload")
                )
            try:
                await service.run()
            finally:
                for task in tasks:
                    task.cancel()
    return 0
