"""Without the webhook adapter pods slip through to the default scheduler, and the reconciler puts
them right.
"""

from pathlib import Path

from extender.kube.api import PODS
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, SLOTS_PER_POD, Setup, System
from tests.e2e.waiting import eventually


async def test_pods_that_were_made_while_the_webhook_was_down_are_repaired(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(default_scheduler=True)) as system:
        await backend.add_nodes(4)
        namespace = await system.pool()
        await system.vpods(5, 8)
        before = {adapter.name: adapter for adapter in await system.settled(pods=2)}
        system.watcher.may_lack_ledger = True
        assert system.webhook is not None
        await system.webhook.kill()
        # A pod that carries vreplicas comes back unseen, and the pool grows by pods that nobody has
        # stamped.
        await backend.api.delete(PODS, namespace, f"{POOL}-0")
        await system.vpods(5, 8)
        returned = await system.came_back(before[f"{POOL}-0"])
        assert returned["spec"]["schedulerName"] == "default-scheduler"
        after = await system.settled(pods=4)
        for obj in await system.adapters():
            assert {PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION} <= obj["metadata"][
                "annotations"
            ].keys()
            assert obj["metadata"]["annotations"][SLOTS_ANNOTATION] == str(SLOTS_PER_POD)
        assert after[0].ledger == before[f"{POOL}-0"].ledger
        for adapter in (after[0], after[2], after[3]):
            await system.event(namespace, adapter.name, "WebhookBypassed")


async def test_once_the_webhook_is_back_pods_pass_through_it_again(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(default_scheduler=True)) as system:
        await backend.add_nodes(3)
        namespace = await system.pool()
        assert system.webhook is not None
        await system.webhook.kill()
        await system.vpods(5, 4)
        (slipped,) = await system.settled(pods=1)
        assert slipped.scheduler_name == "default-scheduler"
        await system.start_webhook()
        await eventually(lambda: system.stamps(POOL), 10.0, "pods are stamped again")
        await backend.api.delete(PODS, namespace, slipped.name)
        await system.came_back(slipped)
        (again,) = await system.settled(pods=1)
        assert (again.scheduler_name, again.ledger) == ("vreplica-scheduler", slipped.ledger)
        assert again.slots == SLOTS_PER_POD
