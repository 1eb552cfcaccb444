"""I5: a bind that is repeated after it succeeded succeeds; and what nobody should ask the extender
for is not granted.
"""

import orjson

from extender.lab.apiserver.store import Change, Store
from extender.lab.faults import Answer
from extender.lab.faults.transport import UNKNOWN_NODE
from extender.model.reasons import ConflictReason


class BindChecker:
    """Looks at what the extender answers kube-scheduler, as ``FaultyTransport`` tells. ``problems``
    collects what was found.
    """

    def __init__(self, store: Store, problems: list[str]) -> None:
        self._store = store
        self._problems = problems
        self._former: dict[tuple[str, str], tuple[str, str]] = {}
        """(namespace, name) -> UID and node of the pod that had the name before."""
        self._was_on: dict[str, str] = {}
        """UID -> the node on which a pod was, that a restored etcd knows nothing of."""

    def note(self, kind: tuple[str, str], change: Change) -> None:
        """A write that has just happened."""
        before, after = change.before, change.after
        if kind != ("", "pods") or before is None:
            return
        node = before.obj["spec"].get("nodeName") or ""
        if after is None:
            self._former[before.key] = (before.uid, node or self._was_on.pop(before.uid, ""))
        elif node and not after.obj["spec"].get("nodeName"):
            self._was_on[before.uid] = node

    def former_uid(self, namespace: str, name: str, node: str) -> str:
        """Of the pod that had the name before, on another node; a bind of it is to be refused. "":
        none is known.

        A restored etcd may have brought that pod back: then it is the present one, and its bind is
        to be granted. It may also have undone its binding: a replica that has not seen the restore
        still answers as to a repeated bind.
        """
        key = (namespace, name)
        uid, was_on = self._former.get(key, ("", ""))
        present = self._store.collection("", "pods").entries.get(key)
        return uid if was_on != node and (present is None or present.uid != uid) else ""

    def repeated(self, url: str, body: bytes, first: Answer, second: Answer) -> None:
        """A call was sent twice: a bind succeeds again, unless the pod has changed meanwhile."""
        if not url.endswith("/bind") or first[0] != 200 or second[0] != 200:
            return
        args, errors = (
            orjson.loads(body),
            [str(orjson.loads(a[1]).get("Error") or "") for a in (first, second)],
        )
        refused = errors[1].partition(":")[0] in set(ConflictReason)
        key = (args["PodNamespace"], args["PodName"])
        entry = self._store.collection("", "pods").entries.get(key)
        if (
            entry is None
            or entry.uid != args["PodUID"]
            or entry.obj["metadata"].get("deletionTimestamp")
        ):
            return
        if not errors[0] and refused:
            self._problems.append(
                f"I5: bind of {key[1]} succeeded, and repeated was refused: {errors[1]}"
            )

    def odd(self, what: str, answer: Answer) -> None:
        """The answer to what nobody should ask for."""
        status, body = answer
        if status != 200:
            return
        reply = orjson.loads(body)
        if what.startswith("bind") and not reply.get("Error"):
            self._problems.append(f"{what} was granted")
        if what.endswith("unknown node") and UNKNOWN_NODE in (reply.get("NodeNames") or ()):
            self._problems.append(f"{what} let it pass")
