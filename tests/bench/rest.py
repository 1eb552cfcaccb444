"""What both stand-ins for an API server speak: its paths, its answers, the scale of a
StatefulSet.
"""

import orjson
from aiohttp import web

from extender.kube.api import Obj


def parts(path: str) -> tuple[str, str, str, str]:
    """Namespace, plural, name and subresource of ``/api/v1/...`` or ``/apis/GROUP/VERSION/...``; ""
    for what it lacks.
    """
    steps = path.strip("/").split("/")
    steps = steps[2:] if steps[0] == "api" else steps[3:]
    namespace = ""
    if len(steps) > 2 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    plural, name, subresource, *_ = [*steps, "", "", ""]
    return namespace, plural, name, subresource


def answer(body: object, status: int = 200) -> web.Response:
    """JSON."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def missing() -> web.Response:
    """404, as a Status."""
    return answer({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}, 404)


def scale_of(stateful_set: Obj) -> Obj:
    """Its scale subresource."""
    metadata, replicas = stateful_set["metadata"], stateful_set["spec"]["replicas"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    }
