"""An API server that also reviews tokens."""

from typing import Any

from extender.kube.api import TOKEN_REVIEWS, ApiError, Obj, Resource
from tests.support.service import FaultApi


class Reviewing(FaultApi):
    """Reviews tokens, too: ``users`` has those that are known, each with its user's name, or with
    all that the review says of the user. ``trouble``: the answer to every review.
    """

    users: dict[str, str | dict[str, Any]]
    trouble: ApiError | None = None

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        if resource != TOKEN_REVIEWS:
            return await super().create(resource, namespace, obj)
        if self.trouble is not None:
            raise self.trouble
        spec = obj["spec"]
        user = self.users.get(spec["token"])
        if user is None:
            return {"status": {"authenticated": False, "error": "what is\nthis"}}
        return {
            "status": {
                "authenticated": True,
                "audiences": spec["audiences"],
                "user": {"username": user} if isinstance(user, str) else user,
            }
        }
