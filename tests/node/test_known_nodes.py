"""Filter and prioritize by sets say the same as one look at each node after the other, whatever has
changed before.
"""

from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.engine.pods import node_index
from extender.engine.state.cluster_state import ClusterState
from extender.model.ledger import Ledger, Share
from extender.model.objects import AdapterPod, AdapterPool, Node
from extender.node import candidates, host_texts
from extender.node.candidates import CandidateLists, Candidates
from extender.node.exposure import Alike, prioritize_known_nodes, prioritize_nodes
from extender.node.host_texts import HostTexts
from extender.node.narrowing import best_of
from extender.node.verbs import (
    NodeVerdicts,
    filter_known_nodes,
    filter_nodes,
    node_problem,
    pod_problem,
    preempt_nodes,
    zone_rule,
)
from extender.node.wire import (
    Victims,
    decode_cut_args,
    decode_extender_args,
    decode_preemption_args,
    encode_filter_result,
    encode_preemption_result,
)
from tests.support.builders import NS, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.worlds import World

pytestmark = pytest.mark.timeout(
    120
)  # thousands of steps: 8 s alone, many times that beside others

NODES = tuple(f"node-{index}" for index in range(5))
UNKNOWN = ("elsewhere", "node-9")
ORDINALS = st.integers(0, 5)
POOLS = st.sampled_from(["dispatcher", "dispatcher", "other"])
UIDS = ("dispatcher-0-u1", "dispatcher-1-u1", "dispatcher-1-u2", "other-0-u1", "somebody-else")
LEDGERS = st.dictionaries(
    st.sampled_from(["tenant/a", "tenant/b"]),
    st.builds(Share, st.integers(1, 4), st.integers(1, 2), st.just(())),
    max_size=2,
)


def a_request(names: list[str]) -> bytes:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})


def of_pool(pod: AdapterPod, name: str) -> AdapterPod:
    return replace(pod, name=f"{name}-{pod.ordinal}", pool=f"{NS}/{name}", owner=name)


def preempt_one_by_one(
    state: ClusterState, pod: AdapterPod, victims: Mapping[str, Victims]
) -> dict[str, Victims]:
    """``preempt_nodes`` by one look at each node after the other."""
    helped = {
        name: state.nodes[name].zone
        for name, those in victims.items()
        if those.uids
        and name in state.nodes
        and node_problem(state, pod, state.nodes[name], without=frozenset(those.uids)) is None
    }
    if pod_problem(state, pod) is not None:
        return {}
    rule = zone_rule(state, pod)
    if rule is not None:
        allowed = rule.allowed(helped.values())
        helped = {name: zone for name, zone in helped.items() if zone in allowed}

    def cost(name: str) -> tuple[int, int]:
        those = victims[name]
        there = state.pods_on_node.get(name, {}).values()
        carried = [
            share.slots
            for other in there
            if other.uid in those.uids
            for share in other.ledger.values()
        ]
        return sum(carried), those.pdb_violations

    least = min(map(cost, helped), default=None)
    return {name: victims[name] for name in helped if cost(name) == least}


class KnownNodes(RuleBasedStateMachine):
    """A cluster that changes; what is asked is always about all nodes, some of them, and two that
    there are not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.texts = HostTexts(self.world.state.node_index)
        self.lists = CandidateLists()
        for name in ("dispatcher", "other"):
            self.world.put(a_stateful_set(6, name=name))
            self.world.put(a_pool(8, name=name, stateful_set=name))

    @initialize(
        zones=st.lists(st.sampled_from(["z0", "z1", "z2"]), min_size=2, max_size=5),
        slots=st.lists(st.sampled_from([None, 8, 16]), min_size=5, max_size=5),
        pods=st.lists(st.tuples(POOLS, ORDINALS, st.sampled_from(NODES), LEDGERS), max_size=6),
    )
    def begin_with(self, zones, slots, pods) -> None:
        for name, zone, room in zip(NODES, zones, slots, strict=False):
            self.world.put(a_node(name, zone, slots=room))
        for pool, ordinal, node, ledger in pods:
            self.put_pod(pool, ordinal, node, ledger, "u1", 8, finished=False)
            for key, share in ledger.items():
                self.put_vpod(pool, key.removeprefix("tenant/"), 4, {ordinal: share.vreplicas})

    @rule(
        name=st.sampled_from(NODES),
        zone=st.sampled_from(["z0", "z1", "z2"]),
        slots=st.sampled_from([None, None, 0, 8, 16, 24]),
        ready=st.booleans(),
    )
    def put_node(self, name: str, zone: str, slots: int | None, ready: bool) -> None:
        self.world.put(a_node(name, zone, slots=slots, ready=ready))

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.world.remove(Node, name)

    @rule(
        pool=POOLS,
        ordinal=ORDINALS,
        node=st.sampled_from(["", *NODES]),
        ledger=LEDGERS,
        uid=st.sampled_from(["u1", "u2"]),
        request=st.sampled_from([None, 0, 8]),
        finished=st.booleans(),
    )
    def put_pod(self, pool, ordinal, node, ledger, uid, request, finished) -> None:
        uid = f"{pool}-{ordinal}-{uid}"
        pod = a_pod(ordinal, ledger, node=node, uid=uid, slots_request=request, finished=finished)
        self.world.put(of_pool(pod, pool))

    @rule(pool=POOLS, ordinal=ORDINALS)
    def remove_pod(self, pool: str, ordinal: int) -> None:
        self.world.remove(AdapterPod, f"{NS}/{pool}-{ordinal}")

    @rule(
        pool=POOLS,
        name=st.sampled_from("ab"),
        wanted=st.integers(0, 9),
        placed=st.dictionaries(ORDINALS, st.integers(1, 3)),
    )
    def put_vpod(self, pool: str, name: str, wanted: int, placed: dict[int, int]) -> None:
        placements = {f"{pool}-{ordinal}": count for ordinal, count in placed.items()}
        vpod = a_vpod(name, wanted, pool=f"{NS}/{pool}")
        self.world.put(replace(vpod, placements=placements))

    @rule(pool=POOLS, slots=st.sampled_from([4, 8, 12]), profile=st.sampled_from(["default", "ha"]))
    def put_pool(self, pool: str, slots: int, profile: str) -> None:
        self.world.put(a_pool(slots, name=pool, stateful_set=pool, profile=profile))

    @rule()
    def remove_pool(self) -> None:
        for key in list(self.world.pools):
            self.world.remove(AdapterPool, key)

    @rule(asked=st.permutations([*NODES, *UNKNOWN]), count=st.integers(0, 7))
    def filter_some(self, asked: list[str], count: int) -> None:
        self.compare_filter(asked[:count])

    @invariant()
    def filter_all(self) -> None:
        self.compare_filter([*UNKNOWN, *NODES])

    @rule(data=st.data())
    def filter_known(self, data: st.DataObject) -> None:
        names = data.draw(st.permutations(sorted(self.world.nodes)))
        self.compare_filter(names)
        self.compare_filter(names[::-1])

    def compare_filter(self, names: list[str]) -> None:
        state = self.world.state
        candidates = Candidates.of(names)
        for pod in self.pods():
            slow, fast = (
                filter_nodes(state, pod, names, state.nodes.get),
                filter_known_nodes(state, pod, candidates),
            )
            assert list(fast.passed) == list(slow.passed)
            assert fast.failed == slow.failed
            assert list(fast.failed) == sorted(fast.failed), "not in a set's order"
            assert dict(fast.unresolvable) == dict(slow.unresolvable)
            self.compare_bytes(names, pod, slow)

    def compare_bytes(self, names: list[str], pod: AdapterPod, slow: NodeVerdicts) -> None:
        """As the verbs do it, with the lists that were seen before: the same answer, which
        prioritize then asks about.
        """
        index = self.world.state.node_index
        body = a_request(names)
        cut = self.lists.cut(body, index.names, index.revision)
        assert (cut is None) is bool(set(names) - index.names.keys())
        if cut is None:
            return
        args = decode_cut_args(*cut)
        assert args is not None
        fast = filter_known_nodes(self.world.state, pod, args.candidates)
        reply = encode_filter_result(args, fast.passed, fast.failed, fast.unresolvable)
        plain = decode_extender_args(body, {})
        wanted = encode_filter_result(plain, slow.passed, slow.failed, slow.unresolvable)
        assert orjson.loads(reply) == orjson.loads(wanted)
        self.lists.answered(fast.passed)
        again = self.lists.cut(a_request(list(slow.passed)), index.names, index.revision)
        assert again is not None
        assert (list(again[1]), again[1].asked) == (list(slow.passed), frozenset(slow.passed))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), ledger=LEDGERS, kept=st.booleans())
    def prioritize(self, data, ledger, kept: bool) -> None:
        names = data.draw(
            st.lists(st.sampled_from(sorted(self.world.nodes)), unique=True, min_size=1)
        )
        self.compare_scores(names, ledger, kept=kept)

    @precondition(lambda self: self.world.nodes)
    @invariant()
    def prioritize_all(self) -> None:
        """The same list again, whose nodes may be in other zones by now."""
        self.compare_scores(sorted(self.world.nodes), {"tenant/a": Share(2)}, kept=True)

    def compare_scores(self, names: list[str], ledger: Ledger, *, kept: bool) -> None:
        state = self.world.state
        text = orjson.dumps(names) if kept else b""
        candidates = Candidates(tuple(names), frozenset(names), known=True, text=text)
        for pod in self.pods():
            groups = prioritize_known_nodes(state, pod, ledger, candidates)
            wanted = prioritize_nodes(state, pod, ledger, names, state.nodes.get)
            assert self.scores(candidates, groups) == wanted
            # Of candidates that come again the texts are kept as a list, whatever the order.
            backwards = tuple(reversed(names))
            reordered = Candidates(
                backwards, candidates.asked, known=True, text=text, first=candidates
            )
            for again in (candidates, reordered, candidates):
                assert self.scores(again, groups) == wanted
            for most in range(1, len(names) + 1):
                best = sorted(names, key=lambda name: (-wanted[name], names.index(name)))[:most]
                narrowed = best_of(candidates, groups, most, state.nodes)
                assert list(narrowed) == sorted(best, key=names.index)

    @rule(
        proposed=st.dictionaries(
            st.sampled_from([*NODES, *UNKNOWN]),
            st.tuples(st.lists(st.sampled_from(UIDS), max_size=3), st.integers(0, 1)),
        )
    )
    def preempt(self, proposed: dict[str, tuple[list[str], int]]) -> None:
        """As decoded from what kube-scheduler would send."""
        pods = {node: [{"UID": uid} for uid in uids] for node, (uids, _) in proposed.items()}
        victims = {
            node: {"Pods": pods[node], "NumPDBViolations": broken}
            for node, (_, broken) in proposed.items()
        }
        raw = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
        body = orjson.dumps(
            {"Pod": raw, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        )
        args = decode_preemption_args(body)
        assert args.victims == {
            node: Victims(tuple(uids), broken) for node, (uids, broken) in proposed.items()
        }
        for pod in self.pods():
            found = preempt_nodes(self.world.state, pod, args.victims)
            assert found == preempt_one_by_one(self.world.state, pod, args.victims)
            reply = orjson.loads(encode_preemption_result(args, found))
            assert reply == {"NodeNameToMetaVictims": {node: victims[node] for node in found}}

    def scores(self, candidates: Candidates, groups: list[Alike]) -> dict[str, int]:
        entries = orjson.loads(self.texts.encode(candidates, groups))
        assert len(entries) == len(candidates.names)
        return {entry["Host"]: entry["Score"] for entry in entries}

    @invariant()
    def pods_are_counted_where_they_stand(self) -> None:
        for pool in self.world.state.pools.values():
            places = [pod.where for pod in pool.pods.values() if pod.bound]
            counted = pool.bound_pods
            assert counted.on_node == {n: sum(p[0] == n for p in places) for n, _ in places}
            assert counted.in_zone == {z: sum(p[1] == z for p in places) for _, z in places}
            alike = [
                (node, zone, count) for zone, count, nodes in counted.alike() for node in nodes
            ]
            assert sorted(alike) == sorted((*place, places.count(place)) for place in set(places))

    def pods(self) -> list[AdapterPod]:
        """Those that there are, as they are asked about: before they are bound; and one that is
        new.
        """
        new = a_pod(5, node="", uid="new", slots_request=8)
        return [*self.world.pods.values(), new, of_pool(new, "other")]


class KnownNodesForgotten(KnownNodes):
    """The same where next to nothing is kept, so that what was kept makes room all the time."""

    LIMITS = (
        (candidates, "LISTS_MAX"),
        (host_texts, "LISTS_MAX"),
        (host_texts, "TABLES_MAX"),
        (host_texts, "BASES_MAX"),
        (node_index, "REQUESTS_MAX"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.limits = pytest.MonkeyPatch()
        for module, name in self.LIMITS:
            self.limits.setattr(module, name, 1)

    def teardown(self) -> None:
        self.limits.undo()


KnownNodes.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestKnownNodes = KnownNodes.TestCase
KnownNodesForgotten.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestKnownNodesForgotten = KnownNodesForgotten.TestCase
