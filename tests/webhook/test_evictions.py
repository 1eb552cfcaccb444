"""``/evict``: which evictions wait, for how long, and what is written meanwhile."""

import asyncio
from typing import Any

import pytest

from extender.kube.api import LEASES, PODS, ApiError, Conflict, Forbidden, NotFound, Obj
from extender.model.decode import pod_from
from extender.model.eviction import FRESH_S, TURN_MAX_S, Eviction, encode_eviction, eviction_of
from extender.model.moves import MoveReason
from extender.model.names import EVICTING_ANNOTATION, PLACEMENTS_ANNOTATION
from extender.model.timestamps import timestamp
from tests.webhook.builders import NS, a_pod, a_pool_object, caches, request
from webhook.evictions import MARK_S, Evictions
from webhook.review import ALLOWED, AdmissionRequest, Verdict

NOW_S = 1_800_000_000.0
UID = "uid-1"
LEASE = ("vreplica-scheduler", "vreplica-scheduler")
OVERLAP = {"mode": "Overlap", "prepareTimeoutSeconds": 30, "drainTimeoutSeconds": 60}
DEADLINE_S = 3 * 30 + 60 + 60


class PodApi:
    """One pod, which merge patches of annotations change. ``errors``: what a verb raises.
    ``renewed``: renewTime of the Lease; None: it may not be read. ``lease_s``: for how long that
    takes.
    """

    def __init__(
        self, pod: Obj, *, renewed: str | None = None, lease_s: float = 0.0, **errors: ApiError
    ) -> None:
        self.pod = pod
        self.renewed = renewed
        self.lease_s = lease_s
        self.errors = errors
        self.reads = 0
        self.patches: list[Obj] = []

    async def get(self, resource: object, namespace: str, name: str) -> Obj:
        if (resource, namespace, name) == (LEASES, *LEASE):
            await asyncio.sleep(self.lease_s)
            if self.renewed is None:
                raise Forbidden(403, "Forbidden", "leases may not be read")
            return {"spec": {"renewTime": self.renewed}}
        self.reads += 1
        if "get" in self.errors:
            raise self.errors["get"]
        if (resource, namespace, name) != (PODS, NS, self.pod["metadata"]["name"]):
            raise NotFound(404, "NotFound", f"pods {name!r} not found")
        return self.pod

    async def patch(self, _resource: object, _namespace: str, _name: str, patch: Obj, **_: Any):
        if "patch" in self.errors:
            raise self.errors["patch"]
        self.patches.append(patch)
        assert patch["metadata"]["uid"] == UID
        self.pod["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])


def an_adapter(
    ledger: str = '{"t/a":3,"t/b":2}',
    *,
    evicting: Eviction | None = None,
    ready: bool = True,
    phase: str = "Running",
    **metadata: Any,
) -> Obj:
    annotations = {PLACEMENTS_ANNOTATION: ledger}
    if evicting is not None:
        annotations[EVICTING_ANNOTATION] = encode_eviction(evicting, UID)
    pod = a_pod(annotations=annotations, nodeName="node-1")
    pod["metadata"] |= {"uid": UID, **metadata}
    pod["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return pod


def an_eviction(name: str = "dispatcher-1", **more: Any) -> AdmissionRequest:
    obj = {"kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
    options = more.pop("options", None)
    obj |= {"deleteOptions": options} if options is not None else {}
    return request(obj, subresource="eviction", name=name, **more)


async def answer(
    api: Any,
    req: AdmissionRequest | None = None,
    *,
    handoff: Obj | None = OVERLAP,
    at_s: float = 0,
) -> Verdict:
    pool = a_pool_object(handoff=handoff or {})
    evictions = Evictions(api, caches(pools=[pool]), now=lambda: NOW_S + at_s, lease=LEASE)
    return await evictions.review(req or an_eviction())


def attempts(api: PodApi) -> tuple[float, float] | None:
    """First and latest attempt as the pod says, in seconds after ``NOW_S``."""
    known = eviction_of(pod_from(api.pod))
    return None if known is None else (known.first_s - NOW_S, known.latest_s - NOW_S)


def of_service(api: Any) -> Evictions:
    """With a pool that hands over, and the service's Lease."""
    pools = [a_pool_object(handoff=OVERLAP)]
    return Evictions(api, caches(pools=pools), now=lambda: NOW_S, lease=LEASE)


@pytest.mark.looptime
@pytest.mark.parametrize("renewed", [timestamp(NOW_S), ""], ids=["some time", "never"])
@pytest.mark.parametrize("evicting", [None, Eviction(NOW_S - 5, NOW_S - 5, queued=True)])
async def test_once_the_lease_has_not_changed_for_a_minute_nothing_waits(evicting, renewed):
    api = PodApi(an_adapter(evicting=evicting), renewed=renewed)
    evictions = of_service(api)
    for _ in range(12):
        assert not (await evictions.review(an_eviction())).allowed
        await asyncio.sleep(5)
    await asyncio.sleep(1)
    allowed = await evictions.review(an_eviction())
    assert allowed.allowed
    assert "no replica of the service has led for 60 s" in allowed.warnings[0]


@pytest.mark.looptime
async def test_while_somebody_leads_an_eviction_waits_whatever_the_clocks_say():
    api = PodApi(an_adapter(), renewed=timestamp(NOW_S - 500))
    evictions = of_service(api)
    for renewals in range(20):
        assert not (await evictions.review(an_eviction())).allowed
        await asyncio.sleep(50)
        api.renewed = timestamp(NOW_S - 500 + renewals)


@pytest.mark.looptime
@pytest.mark.parametrize("delay_s", [0.0, 2.0], ids=["no right", "it takes too long"])
async def test_a_lease_that_cannot_be_read_lets_nothing_go(delay_s):
    evictions = of_service(PodApi(an_adapter(), lease_s=delay_s))
    for _ in range(3):
        refused = await evictions.review(an_eviction())
        assert (refused.allowed, refused.code) == (False, 429)
        await asyncio.sleep(50)


async def test_an_eviction_of_a_pod_that_carries_something_is_refused_and_the_pod_marked():
    api = PodApi(an_adapter())
    refused = await answer(api)
    assert (refused.allowed, refused.code) == (False, 429)
    assert "pod adapters/dispatcher-1 of AdapterPool adapters/dispatcher" in refused.message
    assert "5 vreplicas" in refused.message
    assert attempts(api) == (0, 0)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(an_adapter("{}"), id="it carries nothing"),
        pytest.param(an_adapter(ready=False), id="it is not Ready"),
        pytest.param(an_adapter(phase="Failed"), id="it has finished"),
        pytest.param(an_adapter(deletionTimestamp="2026-01-01T00:00:00Z"), id="it is terminating"),
        pytest.param(an_adapter(labels={}), id="it is no adapter"),
        pytest.param(an_adapter(labels={"vreplica.dev/pool": "other"}), id="of an unknown pool"),
    ],
)
async def test_a_pod_that_hands_nothing_over_is_evicted_at_once(pod):
    api = PodApi(pod)
    assert await answer(api) == Verdict()
    assert api.patches == []


@pytest.mark.parametrize("handoff", [None, {"mode": "None"}], ids=["no handoff", "mode None"])
async def test_a_namespace_without_a_pool_that_hands_over_costs_no_read(handoff):
    api = PodApi(an_adapter())
    assert (await answer(api, handoff=handoff)).allowed
    assert api.reads == 0


async def test_a_pool_without_the_mode_beside_one_that_has_it_waits_for_nothing():
    api: Any = PodApi(an_adapter())
    pools = [a_pool_object(), a_pool_object("other", handoff=OVERLAP)]
    evictions = Evictions(api, caches(pools=pools), now=lambda: NOW_S)
    assert (await evictions.review(an_eviction())).allowed


@pytest.mark.parametrize(
    "more",
    [{"dry_run": True}, {"options": {"dryRun": ["All"]}}],
    ids=["of the request", "of deleteOptions"],
)
async def test_a_dry_run_is_refused_and_writes_nothing(more):
    api = PodApi(an_adapter())
    assert not (await answer(api, an_eviction(**more))).allowed
    assert api.patches == []


async def test_a_pod_is_marked_again_only_after_a_while_and_keeps_its_first_attempt():
    api = PodApi(an_adapter())
    for at_s in (0, 5, MARK_S - 1, MARK_S + 1, MARK_S + 6):
        assert not (await answer(api, at_s=at_s)).allowed
    assert len(api.patches) == 2
    assert attempts(api) == (0, MARK_S + 1)


@pytest.mark.parametrize(
    ("at_s", "allowed"), [(DEADLINE_S - 1, False), (DEADLINE_S, False), (DEADLINE_S + 1, True)]
)
async def test_an_eviction_is_allowed_once_its_deadline_has_passed(at_s, allowed):
    api = PodApi(an_adapter(evicting=Eviction(NOW_S, NOW_S + 120)))
    got = await answer(api, at_s=at_s)
    assert got.allowed is allowed
    assert bool(got.warnings) is allowed


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [(MoveReason.ROLLOUT, True), (MoveReason.MAINTENANCE, True), (MoveReason.EVICTED, False)],
)
async def test_a_mark_of_the_leader_ends_by_its_clock_whatever_the_webhooks_says(reason, allowed):
    """Seed 70002264: the leader's clock was an hour ahead, so a rollout stood still for an hour."""
    first_s = NOW_S + 3600
    mark = Eviction(first_s, first_s + DEADLINE_S + 1, reason, turn_s=first_s)
    verdict = await answer(PodApi(an_adapter(evicting=mark)), at_s=DEADLINE_S + 1)
    assert verdict.allowed is allowed


@pytest.mark.parametrize("ahead_s", [0, FRESH_S + 60])
async def test_a_mark_of_the_leader_stays_as_the_leader_has_written_it(ahead_s: float):
    """Found by review: a webhook whose clock was ahead replaced it, and the rollout stood still."""
    mark = Eviction(NOW_S, NOW_S, MoveReason.ROLLOUT, turn_s=NOW_S)
    api = PodApi(an_adapter(evicting=mark))
    assert not (await answer(api, at_s=ahead_s)).allowed
    assert attempts(api) == (0, 0)


async def test_a_mark_of_a_leader_that_is_gone_ends_in_its_time():
    mark = Eviction(NOW_S, NOW_S, MoveReason.ROLLOUT, turn_s=NOW_S)
    api = PodApi(an_adapter(evicting=mark))
    assert (await answer(api, at_s=DEADLINE_S + FRESH_S + 1)).allowed


async def test_an_attempt_long_after_the_last_one_has_a_deadline_of_its_own():
    api = PodApi(an_adapter(evicting=Eviction(NOW_S, NOW_S + 20)))
    at_s = 20 + FRESH_S
    assert not (await answer(api, at_s=at_s)).allowed
    assert attempts(api) == (at_s, at_s)


async def test_a_mark_of_the_ordinals_former_pod_does_not_count():
    pod = an_adapter()
    former = encode_eviction(Eviction(NOW_S - DEADLINE_S - 1, NOW_S), "uid-0")
    pod["metadata"]["annotations"][EVICTING_ANNOTATION] = former
    api = PodApi(pod)
    assert not (await answer(api)).allowed
    assert attempts(api) == (0, 0)


async def test_a_pod_that_cannot_be_read_or_marked_is_evicted_as_without_a_webhook():
    """An eviction that nobody remembers would be refused for ever."""
    for verb in ("get", "patch"):
        errors: Any = {verb: Forbidden(403, "Forbidden", "no right")}
        api = PodApi(an_adapter(), **errors)
        got = await answer(api)
        assert got.allowed, verb
        assert "without a hand-over" in got.warnings[0]


async def test_a_pod_that_cannot_be_marked_again_still_waits():
    known = Eviction(NOW_S - MARK_S, NOW_S - MARK_S)
    api = PodApi(an_adapter(evicting=known), patch=Forbidden(403, "Forbidden", "no right"))
    assert not (await answer(api)).allowed


async def test_a_pod_that_is_gone_is_for_the_api_server_to_answer():
    assert await answer(PodApi(an_adapter()), an_eviction("dispatcher-9")) == Verdict()


@pytest.mark.parametrize(
    "text", ["", "true", "[]", "{}", '{"uid":"uid-1"}', '{"uid":"uid-1","first":1,"latest":"x"}']
)
async def test_what_others_write_into_the_annotation_is_no_attempt(text):
    pod = an_adapter()
    pod["metadata"]["annotations"][EVICTING_ANNOTATION] = text
    assert eviction_of(pod_from(pod)) is None


LIMITED = {**OVERLAP, "maxUnavailable": {"pool": "10%", "perVPod": 1}}


async def test_an_eviction_that_waits_for_its_turn_is_refused_and_names_the_limits():
    api = PodApi(an_adapter())
    refused = await answer(api, handoff=LIMITED)
    assert (refused.allowed, refused.code) == (False, 429)
    assert "waits for its turn to hand over 5 vreplicas" in refused.message
    assert "spec.handoff.maxUnavailable (pool: 10%, perVPod: 1)" in refused.message
    assert attempts(api) == (0, 0)


async def test_an_eviction_that_is_queued_says_which_pods_it_waits_for():
    why = "1 pod is unavailable (dispatcher-7), and maxUnavailable.pool allows 1"
    mark = Eviction(NOW_S - 100, NOW_S - 1, queued=True, behind=why)
    refused = await answer(PodApi(an_adapter(evicting=mark)), handoff=LIMITED)
    assert f"to hand over 5 vreplicas: {why}; try again" in refused.message


async def test_an_eviction_that_has_its_turn_is_refused_as_in_any_pool():
    mark = Eviction(NOW_S - 100, NOW_S - 1, turn_s=NOW_S - 5)
    refused = await answer(PodApi(an_adapter(evicting=mark)), handoff=LIMITED)
    assert "still has 5 vreplicas to hand over" in refused.message


@pytest.mark.parametrize(
    ("turn_s", "ends_after_s"),
    [
        pytest.param(1000.0, 1000.0 + DEADLINE_S, id="from its turn"),
        pytest.param(None, TURN_MAX_S + DEADLINE_S, id="without a turn, after the longest wait"),
        pytest.param(False, DEADLINE_S, id="without a leader that says that it waits"),
    ],
)
async def test_an_eviction_that_waits_for_its_turn_ends_by_itself(turn_s, ends_after_s):
    queued, turn_s = turn_s is None, NOW_S + turn_s if turn_s else None
    for late_s, allowed in ((0, False), (1, True)):
        now_s = ends_after_s + late_s
        mark = Eviction(NOW_S, NOW_S + now_s - 5, turn_s=turn_s, queued=queued)
        verdict = await answer(PodApi(an_adapter(evicting=mark)), handoff=LIMITED, at_s=now_s)
        assert verdict.allowed == allowed


async def test_a_first_attempt_does_not_overwrite_what_another_one_has_led_to():
    """Found by review: two webhooks read the pod, one marks it, the leader gives it its turn, and
    the mark of the other took the turn away.
    """
    refused = Conflict(409, "Conflict", "the object has been modified")
    api = PodApi(an_adapter(resourceVersion="7"), patch=refused)
    verdict = await answer(api)
    assert (verdict.allowed, verdict.code) == (False, 429)
    api = PodApi(an_adapter(resourceVersion="7"))
    await answer(api)
    (patch,) = api.patches
    assert patch["metadata"]["resourceVersion"] == "7"


async def test_a_pod_whose_ledger_cannot_be_read_may_carry_something():
    refused = await answer(PodApi(an_adapter("{")))
    assert (refused.allowed, refused.code) == (False, 429)
    assert "vreplicas that cannot be read" in refused.message


async def test_a_later_attempt_keeps_the_turn_and_does_not_overwrite_a_newer_one():
    """The leader gives the turn while the webhook has an older version of the pod."""
    pod = an_adapter(evicting=Eviction(NOW_S, NOW_S, turn_s=NOW_S + 2), resourceVersion="7")
    api = PodApi(pod)
    await answer(api, handoff=LIMITED, at_s=MARK_S + 1)
    (patch,) = api.patches
    assert patch["metadata"]["resourceVersion"] == "7"
    known = eviction_of(pod_from(api.pod))
    assert known is not None
    assert (known.turn_s, known.latest_s) == (NOW_S + 2, NOW_S + MARK_S + 1)


@pytest.mark.parametrize("name", ["a/../../secrets?x=", "a\nb", "x" * 1_000_000, "A"])
async def test_what_is_no_name_of_a_pod_costs_no_read(name: str):
    api = PodApi(an_adapter())
    assert await answer(api, an_eviction(name)) == ALLOWED
    assert api.reads == 0


async def test_more_evictions_at_once_than_the_webhook_looks_at_have_to_try_again():
    read, go_on = asyncio.Event(), asyncio.Event()

    class SlowApi(PodApi):
        async def get(self, resource: Any, namespace: str, name: str) -> Obj:
            read.set()
            await go_on.wait()
            return await super().get(resource, namespace, name)

    evictions = of_service(SlowApi(an_adapter()))
    looked_at = [asyncio.create_task(evictions.review(an_eviction())) for _ in range(64)]
    await read.wait()
    got = await evictions.review(an_eviction())
    assert (got.allowed, got.code) == (False, 429)
    assert "too many evictions" in got.message
    go_on.set()
    await asyncio.gather(*looked_at)
    assert "too many" not in (await evictions.review(an_eviction())).message
