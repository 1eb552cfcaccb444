"""I5: a bind that succeeded succeeds again when it is repeated. And the extender grants nothing
that nobody should request.
"""

import orjson

from extender.lab.apiserver.store import Change, Store
from extender.lab.faults import Answer
from extender.lab.faults.transport import UNKNOWN_NODE
from extender.model.reasons import ConflictReason


class BindChecker:
    """Checks the extender's answers to kube-scheduler, which ``FaultyTransport`` reports.
    ``problems`` collects the findings.
    """

    def __init__(self, store: Store, problems: list[str]) -> None:
        self._store = store
        self._problems = problems
        self._former: dict[tuple[str, str], tuple[str, str]] = {}
        """(namespace, name) -> UID and node of the last pod of that name that was removed."""
        self._was_on: dict[str, str] = {}
        """UID -> the node of a pod whose binding a restore of etcd has undone."""

    def note(self, kind: tuple[str, str], change: Change) -> None:
        """Record a write. The store calls this."""
        before, after = change.before, change.after
        if kind != ("", "pods") or before is None:
            return
        node = before.obj["spec"].get("nodeName") or ""
        if after is None:
            self._former[before.key] = (before.uid, node or self._was_on.pop(before.uid, ""))
        elif node and not after.obj["spec"].get("nodeName"):
            self._was_on[before.uid] = node

    def former_uid(self, namespace: str, name: str, node: str) -> str:
        """Return the UID of the former pod of that name, if it was on another node. A bind of it
        must be refused. "" if none is known.

        A restore of etcd may bring the former pod back. Then it is the present pod, and its bind
        must succeed. A restore may also undo its binding: a replica that has not seen the restore
        still answers as if the bind were repeated.
        """
        key = (namespace, name)
        uid, was_on = self._former.get(key, ("", ""))
        present = self._store.collection("", "pods").entries.get(key)
        return uid if was_on != node and (present is None or present.uid != uid) else ""

    def repeated(self, url: str, body: bytes, first: Answer, second: Answer) -> None:
        """Check a call that was sent twice: the second bind succeeds too, unless the pod has
        changed between the calls, or a restore of etcd has undone its binding. The first answer of
        a replica that has not seen the restore yet is still about that binding.
        """
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
            or (entry.uid in self._was_on and not entry.obj["spec"].get("nodeName"))
        ):
            return
        if not errors[0] and refused:
            self._problems.append(
                f"I5: bind of {key[1]} succeeded, and repeated was refused: {errors[1]}"
            )

    def odd(self, what: str, answer: Answer) -> None:
        """Check the answer to a call that nobody should make."""
        status, body = answer
        if status != 200:
            return
        reply = orjson.loads(body)
        if what.startswith("bind") and not reply.get("Error"):
            self._problems.append(f"{what} was granted")
        if what.endswith("unknown node") and UNKNOWN_NODE in (reply.get("NodeNames") or ()):
            self._problems.append(f"{what} let it pass")
