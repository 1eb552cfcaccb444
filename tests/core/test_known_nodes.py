"""Filter and prioritize by sets say the same as one look at each node after the other, whatever has changed before."""

import orjson
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.candidates import CandidateLists, Candidates
from extender.core.ledger import Share
from extender.core.model import AdapterPod, AdapterPool, Node
from extender.core.node_level.exposure import Alike, prioritize_known_nodes, prioritize_nodes
from extender.core.node_level.host_texts import HostTexts
from extender.core.node_level.narrowing import best_of
from extender.core.verbs import NodeVerdicts, filter_known_nodes, filter_nodes
from extender.core.wire import decode_cut_args, decode_extender_args, encode_filter_result
from tests.support.builders import NS, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.worlds import World

NODES = tuple(f"node-{index}" for index in range(5))
UNKNOWN = ("elsewhere", "node-9")
ORDINALS = st.integers(0, 5)
LEDGERS = st.dictionaries(
    st.sampled_from(["tenant/a", "tenant/b"]),
    st.builds(Share, st.integers(1, 4), st.integers(1, 2)),
    max_size=2,
)


def a_request(names: list[str]) -> bytes:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})


class KnownNodes(RuleBasedStateMachine):
    """A cluster that changes; what is asked is always about all nodes, some of them, and two that there are not."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.texts = HostTexts(self.world.state.node_index)
        self.lists = CandidateLists()
        self.world.put(a_stateful_set(6))
        self.world.put(a_pool(8))

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
        ordinal=ORDINALS,
        node=st.sampled_from(["", *NODES]),
        ledger=LEDGERS,
        uid=st.sampled_from(["u1", "u2"]),
        request=st.sampled_from([None, 0, 8]),
        finished=st.booleans(),
    )
    def put_pod(self, ordinal, node, ledger, uid, request, finished) -> None:
        pod = a_pod(
            ordinal, ledger, node=node, uid=f"{ordinal}-{uid}", slots_request=request, finished=finished
        )
        self.world.put(pod)

    @rule(ordinal=ORDINALS)
    def remove_pod(self, ordinal: int) -> None:
        self.world.remove(AdapterPod, f"{NS}/dispatcher-{ordinal}")

    @rule(
        name=st.sampled_from("ab"),
        wanted=st.integers(0, 9),
        placed=st.dictionaries(ORDINALS, st.integers(1, 3)),
    )
    def put_vpod(self, name: str, wanted: int, placed: dict[int, int]) -> None:
        self.world.put(a_vpod(name, wanted, placed))

    @rule(slots=st.sampled_from([4, 8, 12]), profile=st.sampled_from(["default", "ha"]))
    def put_pool(self, slots: int, profile: str) -> None:
        self.world.put(a_pool(slots, profile=profile))

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
        """As the verbs do it, with the lists that were seen before: the same answer, which prioritize then asks about."""
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
        if isinstance(fast.passed, Candidates):
            self.lists.answered(fast.passed)
        again = self.lists.cut(a_request(list(slow.passed)), index.names, index.revision)
        assert again is not None
        assert (list(again[1]), again[1].asked) == (list(slow.passed), frozenset(slow.passed))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), ledger=LEDGERS, kept=st.booleans())
    def prioritize(self, data, ledger, kept: bool) -> None:
        state = self.world.state
        names = data.draw(st.lists(st.sampled_from(sorted(self.world.nodes)), unique=True, min_size=1))
        text = orjson.dumps(names) if kept else b""
        candidates = Candidates(tuple(names), frozenset(names), known=True, text=text)
        for pod in self.pods():
            groups = prioritize_known_nodes(state, pod, ledger, candidates)
            wanted = prioritize_nodes(state, pod, ledger, names, state.nodes.get)
            found = self.scores(candidates, groups)
            assert found == wanted
            assert list(found) == names
            # Of candidates that come again the texts are kept as a list, whatever the order.
            backwards = tuple(reversed(names))
            reordered = Candidates(backwards, candidates.asked, known=True, text=text, first=candidates)
            for again in (candidates, reordered, candidates):
                assert self.scores(again, groups) == wanted
            for most in range(1, len(names) + 1):
                best = sorted(names, key=lambda name: (-found[name], names.index(name)))[:most]
                narrowed = best_of(candidates, groups, most, state.nodes)
                assert narrowed == sorted(best, key=names.index)

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
            alike = [(node, zone, count) for zone, count, nodes in counted.alike() for node in nodes]
            assert sorted(alike) == sorted((*place, places.count(place)) for place in set(places))

    def pods(self) -> list[AdapterPod]:
        """Those that there are, as they are asked about: before they are bound; and one that is new."""
        return [*self.world.pods.values(), a_pod(5, node="", uid="new", slots_request=8)]


KnownNodes.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestKnownNodes = KnownNodes.TestCase
