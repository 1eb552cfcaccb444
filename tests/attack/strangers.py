"""Reviews that a stranger has made up, sent to the webhook's open port: their answers say nothing
of other tenants.
"""

import base64
import itertools
import logging
from typing import Any, Final

import aiohttp
import orjson

from extender.kube.api import Obj
from extender.model.names import PLACEMENTS_ANNOTATION, POOL_LABEL, SLOTS_ANNOTATION
from tests.attack.target import Target
from tests.e2e.scenario import POOL, SLOTS_PER_POD, adapter_pool
from tests.webhook.builders import review

log = logging.getLogger(__name__)

STRANGER: Final = "of-a-stranger"
SECRET_SLOTS: Final = 1_733


async def play(target: Target) -> list[str]:
    """What is wrong: answers that name a vpod or a namespace of others, or a pool's size to who may
    not use it.
    """
    system, wrong = target.system, []
    selector = {"matchLabels": {"friends": "only"}}
    await system.backend.apply(
        [
            adapter_pool(
                system.namespace, "private", slotsPerPod=SECRET_SLOTS, namespaceSelector=selector
            )
        ]
    )
    vpods = (await system.all_vpods()).values()
    private = {vpod.namespace for vpod in vpods} | {vpod.name for vpod in vpods}
    asked = 0
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for path, body in itertools.product(("/mutate", "/validate"), _reviews(target)):
            url = f"{system.webhook_url}{path}"
            async with session.post(url, data=body, ssl=system.webhook_tls or True) as reply:
                text = await reply.read()
            asked += 1
            response = orjson.loads(text)["response"] if reply.status == 200 else {}
            told = (text + base64.b64decode(response.get("patch", ""))).decode()
            named = [name for name in private if f"{name}/" in told or f"/{name}" in told]
            if named or str(SECRET_SLOTS) in told:
                wrong.append(f"{path} tells of {named[:3] or SECRET_SLOTS}: {told[:200]}")
    log.info("%d made-up reviews, beside %d names that they must not tell", asked, len(private))
    return wrong if private else ["nobody else is there, so nothing is proven"]


def _reviews(target: Target) -> list[bytes]:
    namespace = target.system.namespace
    adapter: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{POOL}-0", "namespace": namespace, "labels": {POOL_LABEL: POOL}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/adapter:1"}]},
    }
    annotated = orjson.loads(orjson.dumps(adapter))
    annotated["metadata"]["annotations"] = {PLACEMENTS_ANNOTATION: "{}", SLOTS_ANNOTATION: "1"}
    pool = adapter_pool(namespace, slotsPerPod=1)
    second = adapter_pool(namespace, "second", statefulSet=POOL)
    vpod = target.system.vpod(STRANGER, "mine", 1, "private", slotsPerVReplica=SECRET_SLOTS + 1)
    light = target.system.vpod(STRANGER, "mine", 1, "private", slotsPerVReplica=1)
    too_heavy = target.system.vpod(STRANGER, "mine", 1, slotsPerVReplica=SLOTS_PER_POD + 1)
    ours: Any = {"resource": "vpods", "group": "vreplica.dev", "namespace": STRANGER}
    pools: Any = {"resource": "adapterpools", "group": "vreplica.dev"}
    return [
        review(adapter),
        review(annotated),
        review(annotated, oldObject=adapter),
        review(pool, **pools),
        review(second, **pools),
        review(None, **pools, operation="DELETE", name=POOL, oldObject=pool),
        review(vpod, **ours),
        review(light, **ours),
        review(light, **ours, oldObject=too_heavy),
        review(too_heavy, **ours),
    ]
