"""The embedded cluster over HTTP, for kubectl and any Kubernetes client.

One catch-all route reads a request into a ``Call`` (resource, namespace, name, subresource,
options), and ``verbs`` answers it through the cluster's ``Api``. Bodies are JSON, and protobuf only
for a few kinds of kubectl (``protobuf``). By default it listens on loopback. It has no TLS and no
real authentication: a listed bearer token names the user, a request without a token is ``admin``,
and an unknown token gets 401. A TokenReview knows the same tokens, for any audience. As a client's
header holds no colon there (RFC 6750, 2.1), it also knows a ServiceAccount's name in base64url.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from extender.kube.api import EVENTS, ApiError, Obj
from extender.kube.serving.browsers import Sites, only_own_site
from extender.kube.serving.sockets import host_port
from extender.lab.apiserver import statuses
from extender.lab.apiserver.cluster import Cluster, UserView
from extender.lab.apiserver.core_events import CORE_EVENTS
from extender.lab.apiserver.webhooks import HttpWebhookCaller
from extender.lab.http import discovery, verbs as http_verbs
from extender.lab.http.verbs import TRUE, Call, json_response

BODY_BYTES_MAX: Final = 3 * 1024 * 1024
SHUTDOWN_TIMEOUT_S: Final = 1.0
SERVICE_ACCOUNT: Final = "system:serviceaccount:"
"""A token of this form is itself the user's name. The embedded cluster keeps no secrets."""


class HttpApiServer:
    """An HTTP server in front of a ``Cluster``. ``port`` 0 takes any free port. ``tokens`` maps
    bearer tokens to usernames.

    Unless ``webhooks`` is None, the cluster calls its admission webhooks through it.
    """

    def __init__(
        self,
        cluster: Cluster,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tokens: Mapping[str, str] | None = None,
        webhooks: HttpWebhookCaller | None = None,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._port = port
        self._tokens = dict(tokens or {})
        self._webhooks = webhooks
        self._runner: web.AppRunner | None = None
        self._watches: dict[asyncio.Task[Any], None] = {}

    @property
    def url(self) -> str:
        """The base URL. The port is known after the start."""
        return f"http://{host_port(self._host, self._port)}"

    def kubeconfig(self, token: str = "") -> Obj:
        """Return a kubeconfig for the user of ``token``, or for admin."""
        user: Obj = {"token": token} if token else {}
        return {
            "kind": "Config",
            "apiVersion": "v1",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}
            ],
            "current-context": "embedded",
        }

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[only_own_site(_sites)])
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self._port = int(self._runner.addresses[0][1])
        if self._webhooks is not None:
            self._cluster.call_webhooks_with(self._webhooks)

    async def stop(self) -> None:
        """End all watches and stop listening."""
        for task in list(self._watches):
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._webhooks is not None:
            await self._webhooks.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            body = statuses.status_body(error)
            response = json_response(body, body["code"])
            if error.retry_after_s is not None:
                response.headers["Retry-After"] = str(max(1, int(error.retry_after_s)))
            return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        steps = [step for step in request.path.split("/") if step]
        match steps:
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["apis", "authentication.k8s.io", "v1", "tokenreviews"]:
                return await self._review_token(request)
            case ["api", version, first, *rest]:
                return await self._resource(request, "", version, [first, *rest])
            case ["apis", group, version, first, *rest]:
                return await self._resource(request, group, version, [first, *rest])
            case _:
                return json_response(discovery.document(self._cluster.server.registry, steps))

    async def _resource(
        self, request: web.Request, group: str, version: str, steps: list[str]
    ) -> web.StreamResponse:
        namespace = ""
        if steps[0] == "namespaces" and len(steps) > 2 and steps[2] not in ("status", "finalize"):
            namespace, steps = steps[1], steps[2:]
        if len(steps) > 3:
            raise statuses.no_such_resource()
        plural, name, subresource = (*steps, "", "")[:3]
        registry = self._cluster.server.registry
        core_event = (group, version, plural) == ("", "v1", "events")
        kind = registry.resolve(EVENTS) if core_event else registry.find(group, version, plural)
        resource = CORE_EVENTS if core_event else kind.resource
        call = Call(request, self._view(request), kind, resource, namespace, name, subresource)
        match request.method:
            case "GET" if not name and request.query.get("watch") in TRUE:
                return await self._watch(call)
            case "GET":
                return await http_verbs.read(call)
            case "POST":
                return await http_verbs.post(call)
            case "PUT" | "PATCH" if name and not core_event:
                return await http_verbs.write(call)
            case "DELETE":
                return await http_verbs.delete(call)
            case _:
                raise statuses.method_not_allowed()

    async def _review_token(self, request: web.Request) -> web.Response:
        """Answer a TokenReview: nothing is stored. Raises ApiError 400, 401, 405."""
        self._view(request)
        if request.method != "POST":
            raise statuses.method_not_allowed()
        try:
            spec = orjson.loads(await request.read())["spec"]
            token, audiences = str(spec["token"]), list(spec.get("audiences", ()))
        except (ValueError, TypeError, KeyError) as problem:
            raise statuses.bad_request("the body is no TokenReview with a spec.token") from problem
        status: Obj = {"authenticated": False}
        if username := self._user_of(token) or self._user_of(_decoded(token)):
            user: Obj = {"username": username, **_bound_to(token)}
            status = {"authenticated": True, "user": user, "audiences": audiences}
        review = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        return json_response({**review, "status": status}, 201)

    def _user_of(self, token: str) -> str:
        account = token.partition("/")[0]
        return account if token.startswith(SERVICE_ACCOUNT) else self._tokens.get(token, "")

    async def _watch(self, call: Call) -> web.StreamResponse:
        """Serve a watch so that ``stop`` can end it."""
        task = asyncio.current_task()
        if task is None:
            raise statuses.internal("a request outside of a task")
        self._watches[task] = None
        try:
            return await http_verbs.watch(call)
        finally:
            del self._watches[task]

    def _view(self, request: web.Request) -> UserView:
        """Return the view of the request's user, dry if requested. Raises ApiError 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        view: UserView = self._cluster
        if scheme.lower() == "bearer":
            username = self._user_of(token)
            if not username:
                raise ApiError(401, "Unauthorized", "Unauthorized")
            view = self._cluster.as_user(username)
        return view.dry_run() if "All" in request.query.getall("dryRun", []) else view


def bound_token(namespace: str, account: str, pod: str, uid: str) -> str:
    """Return a ServiceAccount's token that is bound to a pod, as a projected volume has."""
    text = f"{SERVICE_ACCOUNT}{namespace}:{account}/{pod}/{uid}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _bound_to(token: str) -> Obj:
    """What a TokenReview says of the pod to which a token is bound."""
    account, _, bound = _decoded(token).partition("/")
    pod, _, uid = bound.partition("/")
    if not account.startswith(SERVICE_ACCOUNT) or not uid:
        return {}
    prefix = "authentication.kubernetes.io"
    return {"extra": {f"{prefix}/pod-name": [pod], f"{prefix}/pod-uid": [uid]}}


def _decoded(token: str) -> str:
    """The name that a token is the base64url of; "" if it is of none. What follows a space in it
    makes tokens of one name different.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return text.decode().partition(" ")[0]
    except ValueError:
        return ""


def _sites() -> Sites:
    return Sites(checks_host=True)
