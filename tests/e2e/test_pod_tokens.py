"""What a real API server says of the token of an adapter pod: for which pod it is, and for how
long.
"""

import time

from extender.kube.token_review import NOBODY, TTL_S, TokenReviews, TokenUser
from extender.model.names import POOL_LABEL
from tests.e2e.objects import pod
from tests.e2e.real import RealBackend
from tests.e2e.waiting import eventually

AUDIENCE = "vreplica.dev"
ACCOUNT = "dispatcher"


async def test_a_token_that_is_bound_to_a_pod_says_so_and_ends_with_the_pod(real: RealBackend):
    namespace = await real.namespace("adapters")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    adapter = pod(namespace, "dispatcher-0")
    adapter["metadata"]["labels"] = {POOL_LABEL: "dispatcher"}
    adapter["spec"]["serviceAccountName"] = ACCOUNT
    await real.apply([{**account, "metadata": {"name": ACCOUNT, "namespace": namespace}}, adapter])
    url = f"/api/v1/namespaces/{namespace}/pods/dispatcher-0"
    uid = (await real.raw.get(url)).body["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "dispatcher-0", "uid": uid}
    now = time.monotonic()
    offset = [0.0]
    reviews = TokenReviews(real.api, audience=AUDIENCE, clock=lambda: now + offset[0])

    async def token(**spec: object) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
        answer = await real.raw.post(path, {"spec": {"audiences": [AUDIENCE], **spec}})
        assert answer.status == 201, answer
        return str(answer.body["status"]["token"])

    async def user(text: str) -> TokenUser:
        offset[0] += TTL_S
        return await reviews.user(text, peer="", allowed=lambda _user: True)

    name = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    pods_own = await token(boundObjectRef=bound)
    assert await user(pods_own) == TokenUser(name, "dispatcher-0", uid)
    assert await user(await token()) == TokenUser(name)
    for_others = await token(boundObjectRef=bound, audiences=["vreplica-schedule"])
    assert await user(for_others) == NOBODY

    assert (await real.raw.delete(url)).status == 200

    async def is_out() -> bool:
        return await user(pods_own) == NOBODY

    await eventually(is_out, 30.0, "the token has ended with its pod")
