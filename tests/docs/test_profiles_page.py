"""docs/profiles.md shows what the profiles really do: its tables are made here, and compared with
the page.

``python -m tests.docs.test_profiles_page`` writes them anew.
"""

import re
from pathlib import Path
from types import ModuleType

import yaml

from extender.cli.query.plan import run_plan
from extender.cli.query.where import Where
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.policy.registry import with_plugins
from extender.engine.state.manifests import Manifests
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod
from tests.support.builders import Scene, a_node
from tests.support.placing import place

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "profiles.md"
CLUSTER = ROOT / "manifests" / "examples" / "profiles" / "cluster.yaml"
BEGIN, END = "<!-- made by", "<!-- end -->"
SHOWN = ("default", "pack", "spread", "ha")


def _placed(profile: str) -> tuple[PoolState, dict[str, tuple[VPod, dict[str, int]]]]:
    manifests = Manifests()
    for document in yaml.safe_load_all(CLUSTER.read_text()):
        manifests.add(document, CLUSTER.name)
    state = manifests.state({"default": BUILT_IN_PROFILES[profile]})
    pool = state.pool(manifests.pools[0].key)
    found = {}
    for index, vpod in enumerate(sorted(manifests.vpods, key=lambda vpod: vpod.key)):
        decision = place(pool, vpod)
        pool.reserve(index, vpod.key, decision.shares({}), expires_at=1e9)
        found[vpod.name] = (vpod, dict(decision.target))
    return pool, found


def lost_with_a_zone(pool: PoolState, placed: dict[str, int], wanted: int) -> int:
    """Percent of ``wanted`` that the worst zone's loss takes."""
    zones: dict[str, int] = {}
    for name, count in placed.items():
        _, zone = pool.pods[name].where
        zones[zone] = zones.get(zone, 0) + count
    return round(100 * max(zones.values(), default=0) / wanted)


def table(profile: str) -> str:
    pool, found = _placed(profile)
    pods = [pod.name for pod in pool.members()]
    heads = [f"{name[-1]} ({pool.pods[name].where[1][-1]})" for name in pods]
    lines = [
        f"**`{profile}`**",
        "",
        f"| vpod | wants | {' | '.join(heads)} | waits | lost with a zone |",
        f"|---|---|{'---|' * len(heads)}---|---|",
    ]
    for name, (vpod, target) in found.items():
        cells = [str(target.get(pod, "")) for pod in pods]
        waits = vpod.vreplicas - sum(target.values())
        lost = lost_with_a_zone(pool, target, vpod.vreplicas)
        lines.append(
            f"| {name} | {vpod.vreplicas} | {' | '.join(cells)} | {waits or ''} | {lost} % |"
        )
    return "\n".join(lines)


def tables() -> str:
    return "\n\n".join(table(profile) for profile in SHOWN)


def rewritten(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    line, _, rest = rest.partition("\n")
    return f"{before}{BEGIN}{line}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


def test_the_page_shows_what_the_profiles_do():
    assert PAGE.read_text() == rewritten(PAGE.read_text()), (
        "python -m tests.docs.test_profiles_page writes it anew"
    )


def test_the_plugin_on_the_page_loads_and_does_what_it_says():
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    module = ModuleType("acme_placing")
    exec(compile(code[1], "acme_placing.py", "exec"), vars(module))
    registry = with_plugins({"FewNodes": module.FEW_NODES})
    profile = profile_from({"name": "few", "filters": [{"name": "FewNodes"}]}, registry)
    scene = Scene(replicas=6).vpod("a", 20)
    for ordinal in range(6):
        scene.node(a_node(f"node-{ordinal}")).pod(ordinal, {}, node=f"node-{ordinal}")
    scene.pool.set_profile(profile)
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (len(decision.target), decision.pending) == (3, 0)


def test_the_pools_that_are_even_by_memory_are_as_the_page_says():
    page = PAGE.read_text()
    text = re.search(r"```yaml\n([^`]*even-by-memory[^`]*)```", page)
    assert text is not None
    shown = re.findall(r"^\| (?:cache|small|memory in use) \|.*$", page, re.MULTILINE)
    (document,) = yaml.safe_load(text[1])["profiles"]
    found: dict[str, list[list[str]]] = {}
    for profile in (BUILT_IN_PROFILES["default"], profile_from(document)):
        scene = Scene(replicas=2, capacities=(("memory", 100),)).pods(0, 1)
        scene.pool.set_profile(profile)
        for name, vreplicas, memory in (("cache", 1, 40), ("small", 3, 10)):
            scene.vpod(name, vreplicas, per_vreplica=(("memory", memory),))
            decision = place(scene.pool, scene.pool.vpods[f"tenant/{name}"])
            scene.pool.reserve(name, decision.vpod, decision.shares({}), expires_at=1e9)
            target = [decision.target.get(f"dispatcher-{ordinal}", "") for ordinal in (0, 1)]
            found.setdefault(name, [[str(memory)]]).append([str(count) for count in target])
        used = [str(pod.held_amounts.get("memory", 0)) for pod in scene.pool.members()]
        found.setdefault("memory in use", [[""]]).append(used)
    assert shown == [
        f"| {name} | {' | '.join(cell for cells in row for cell in cells)} |"
        for name, row in found.items()
    ]


def test_every_built_in_profile_is_on_the_page():
    for name in BUILT_IN_PROFILES:
        assert f"| `{name}` |" in PAGE.read_text()


async def test_the_command_on_the_page_plans_that_cluster(capsys):
    where = Where(files=(str(CLUSTER),))
    assert await run_plan(where, output="json", autoscale=False, compact=False, profile="ha") == 0
    assert '"name": "video"' in capsys.readouterr().out


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
