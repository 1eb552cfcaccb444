"""The page in a real browser: what it shows of small, large, changing and hostile states, and how
it is used.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from extender.config.model import Mode
from extender.lab.demo.local import LocalSystem
from extender.lab.demo.story import NODES_COUNT, POOL_NAMESPACE, VPODS_COUNT, Census, Story
from extender.model.ledger import Share
from extender.model.objects import VPod
from tests.support.builders import NS, POOL, Scene, a_node, a_pool
from tests.ui.browser import browsing, needs_browser
from tests.ui.scene import Answers, Cluster, Leader, a_page, an_hour_of_history, served

pytestmark = needs_browser
NOT_THERE = ("404",)
"""Not all of these servers answer questions; the browser notes what is not found."""
EXPLAINED = {
    "outcome": "3 of 8 vreplicas are not placed (InsufficientSlots)",
    "rule": "round robin by ordinal",
    "size": {
        "replicas": 6,
        "schedulable": 5,
        "wanted": 7,
        "unlimited": 9,
        "maxPods": 7,
        "slotsPerPod": 20,
        "freeSlots": 0,
        "withoutNode": 1,
        "refusal": "0/6 nodes are available: 6 Insufficient cpu.",
    },
    "steps": ["kept: 5 on dispatcher-1"],
    "decided": {"at": "2026-01-02T03:04:05Z", "by": "replica-1", "why": "the vpod changed"},
    "fixes": [
        {
            "change": "one pod more",
            "object": "StatefulSet ns/dispatcher",
            "field": "spec.replicas",
            "from": 6,
            "to": 7,
            "places": 3,
            "left": 0,
            "moves": 0,
            "byItself": True,
            "onlyBeforeOthers": True,
            "note": "the autoscaler adds it",
        }
    ],
    "candidates": [
        {
            "pod": "dispatcher-1",
            "verdict": "refused",
            "freeSlots": 0,
            "score": None,
            "text": "no free slot",
        }
    ],
    "history": [{"at": "2026-01-02T03:04:05Z", "by": "replica-1", "text": "5 placed"}],
}
PLANNED = {
    "summary": {
        "moved": 2,
        "unplacedBefore": 0,
        "unplacedAfter": 1,
        "podsBefore": 6,
        "podsAfter": 7,
        "overcommittedAfter": 0,
    },
    "vpods": [
        {
            "name": "alpine/orders-3",
            "before": {"dispatcher-0": 2},
            "after": {"dispatcher-1": 1},
            "unplaced": 1,
            "reasons": ["InsufficientSlots"],
        },
        {
            "name": "alpine/what-if-0",
            "before": {},
            "after": {"dispatcher-6": 3},
            "unplaced": 0,
            "reasons": [],
        },
    ],
}


def small() -> Cluster:
    return Cluster(pods=6, vpods=8, nodes=3, tenants=4)


async def test_the_demonstration_is_shown_as_it_happens(tmp_path: Path):
    async with LocalSystem(seed=1, directory=tmp_path) as system:
        census = Census()
        system.local.spawn(census.follow(system.local.cluster), "census")
        async with browsing(system.running.server.url) as page:
            await page.until_text(".notice", "There is no AdapterPool yet.")
            told: list[str] = []
            await Story(system, census, told.append).play()
            steps = [line for line in told if "nobody serves" not in line]
            assert (len(steps), len(told)) == (10, 12)
            assert all(
                line.endswith("; nothing moved, nothing overcommitted") for line in steps[1::2]
            )
            assert max(map(len, told)) <= 80
            await page.until_pods(len(census.pods))
            await page.until_text("#numbers", f"vpods {VPODS_COUNT}")
            await page.until_text(".node.trouble", "not ready")
            await page.until_count(".node", NODES_COUNT)
            await page.until_count(".zone", 3)
            lost = [pod for pod in census.pods.values() if pod.node == "node-4"]
            await page.until_text("#side", f"{len(lost)} pods: node not ready")
            on_lost = sum(
                vpod.placements.get(pod.name, 0) for vpod in census.vpods.values() for pod in lost
            )
            await page.until_text("#numbers", f"unserved {on_lost}")
            await page.until_text("#side", f"Nobody serves what is on {len(lost)} pods: node")
            assert await page.tab.title() == f"({on_lost} unserved) vreplicas"
            await page.find("team-a/orders-0")
            await page.until_text("#side", "30 of 30 vreplicas are placed, 30 published.")
            await page.until_text("#side .explanation", "all 30 vreplicas are placed")
            await page.until_text("#side .explanation", f"Candidates ({len(census.pods)})")
            assert await page.violations() == []
            await page.tab.click("#what-if")
            await page.tab.fill("#target", "zone/zone-a")
            await page.tab.click("text=Show the plan")
            await page.until_text("#side", "Everything that is placed now would have a place.")
            zone_a = {"node-0", "node-3"}
            drained = {
                name
                for vpod in census.vpods.values()
                for name in vpod.placements
                if census.pods[f"{POOL_NAMESPACE}/{name}"].node in zone_a
            }
            assert await page.tab.locator(".mark.fewer").count() == len(drained)
            assert census.moved == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_a_thousand_pods_and_two_thousand_vpods_are_shown_and_kept_up_to_date(dark: bool):
    cluster = Cluster(pods=1_000, vpods=2_000, nodes=100)
    page = a_page(cluster.state)
    await an_hour_of_history(page, cluster)
    async with served(page) as url, browsing(url, dark=dark) as it:
        await it.until_pods(1_000)
        assert await it.tab.locator("#map.dense .node").count() == 101
        assert "1,000 979 take work" in await it.text("#numbers")
        assert await it.violations(without=".node:nth-child(n+4)") == []
        pod = cluster.pods["dispatcher-0"]
        cluster.put(replace(pod, ledger={**pod.ledger, "newcomer/new": Share(1)}))
        label = it.tab.locator('[data-name="dispatcher-0"]')

        async def is_told() -> bool:
            return "newcomer 1" in str(await label.get_attribute("aria-label"))

        await it.until(is_told, "the change is not shown")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_view_is_accessible(dark: bool):
    cluster = small()
    page = a_page(cluster.state)
    await an_hour_of_history(page, cluster)
    async with served(page, Answers(EXPLAINED, PLANNED)) as url, browsing(url, dark=dark) as it:
        await it.until_pods(6)
        assert await it.violations() == []
        await it.find("alpine/orders-0")
        await it.until_text(".explanation", "one pod more")
        for summary in await it.tab.locator("#side summary").all():
            await summary.click()
        assert await it.violations() == []
        await it.tab.click("#what-if")
        await it.tab.click("text=Show the plan")
        await it.until_text("#side", "The plan")
        assert await it.violations() == []
        await it.tab.keyboard.press("Escape")
        await it.tab.click("#view")
        await it.until_text("#table", "dispatcher-5")
        assert await it.violations() == []


async def test_a_vpod_is_found_and_explained():
    answers = Answers(EXPLAINED)
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.find("alpine/orders-0")
        await it.until_text("#side", "5 of 8 vreplicas are placed")
        for says in (
            "one pod more (6 to 7) (StatefulSet ns/dispatcher): places 3 vreplicas; by itself;"
            " only if it is served before the others that wait; the autoscaler adds it",
            "The pool has 6 pods of 20 slots (5 schedulable, 0 slots free) and needs 9: maxPods "
            "holds it at 7.",
            "1 pod of it waits for a node; kube-scheduler finds none: 0/6 nodes are available: 6 "
            "Insufficient cpu.",
            "The profile's rule for new ones: round robin by ordinal",
            "by replica-1: the vpod changed",
            "How it was decided (1)",
            "Candidates (1)",
            "History (1)",
        ):
            await it.until_text(".explanation", says)
        assert answers.asked == [{"vpod": "alpine/orders-0"}]
        assert await it.tab.locator(".pod.inside").count() == 5
        assert "vpod=alpine%2Forders-0" in it.tab.url
        await it.tab.reload()
        await it.until_text("#side h2", "alpine/orders-0")
        await it.until_count(".pod.inside", 5)


async def test_the_page_says_what_the_loss_of_a_zone_costs():
    scene = Scene(replicas=2)
    for index in (0, 1):
        scene.node(a_node(f"node-{index}", f"zone-{index}"))
    scene.pod(0, {"tenant/a": 3, "tenant/b": 1}, node="node-0").pod(
        1, {"tenant/a": 1}, node="node-1"
    )
    scene.vpod("a", 4, {0: 3, 1: 1}).vpod("b", 1, {0: 1})
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(2)
        await it.find("tenant/a")
        await it.until_text("#side", "Losing zone-0 would take 3 of 4.")
        await it.tab.click("#side >> role=button[name='zone-0']")
        await it.until_text("#side", "4 vreplicas of 2 vpods; 1 vpod would have nothing left.")


async def test_a_tenant_that_is_selected_is_seen_alone():
    scene = (
        Scene(replicas=3)
        .pod(0, {"alpine/a": 3, "birch/b": 1})
        .pod(1, {"birch/b": 2})
        .pod(2, {"alpine/a": 1})
    )
    async with served(a_page(scene.state)) as url, browsing(url) as it:
        await it.until_pods(3)
        assert await it.tab.locator(".bar .faded").count() == 0
        await it.tab.click("#side >> role=button[name='birch']")
        await it.until_text("#side h2", "tenant birch")
        await it.until_count(".pod.inside", 2)
        await it.until_count(".inside .bar i.faded", 1)
        await it.until_count(".inside .bar i:not(.faded, .free)", 2)


async def test_of_several_pools_the_first_is_shown_and_the_others_are_one_step_away():
    cluster = small()
    cluster.state.adapter_pool_changed(None, a_pool(name="broker", stateful_set="broker"))
    async with served(a_page(cluster.state)) as url, browsing(url) as it:
        await it.until_text("#side", "Pools (2)")
        assert await it.tab.locator("#pool").input_value() == f"{NS}/broker"
        await it.tab.click(f"#side >> role=button[name='{POOL}']")
        await it.until_pods(6)
        assert await it.tab.locator("#pool").input_value() == POOL
        await it.tab.select_option("#pool", f"{NS}/broker")
        await it.until_pods(0)
        await it.tab.reload()
        await it.until_text("#side", "Pools (2)")
        assert await it.tab.locator("#pool").input_value() == f"{NS}/broker"


async def test_what_if_shows_a_plan_and_leaves_no_trace():
    answers = Answers(plan=PLANNED)
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        await it.until_text(".notice.what-if", "Nothing is changed by it.")
        await it.tab.fill("#target", "zone/zone-b")
        await it.tab.click("text=Add")
        await it.tab.fill("#target", "node/node-1")
        await it.tab.click("text=Add")
        await it.tab.select_option("[name=how]", "fail")
        await it.tab.fill("#target", "zone/zone-b")
        await it.tab.fill("[name=slotsPerPod]", "22")
        await it.tab.fill("[name=vpods]", "2")
        await it.tab.select_option("[name=profile]", "ha")
        await it.tab.click("text=Show the plan")
        await it.until_text("#side", "1 vreplica more would have to wait.")
        (asked,) = answers.asked
        more = asked.pop("addVPods")
        assert asked == {
            "pool": POOL,
            "autoscale": True,
            "drain": ["node/node-1"],
            "fail": ["zone/zone-b"],
            "set": {"slotsPerPod": 22},
            "profile": "ha",
        }
        assert [(vpod["vreplicas"], vpod["slotsPerVReplica"]) for vpod in more] == [(1, 1)] * 2  # type: ignore[attr-defined]
        assert await it.texts(".pod .mark.more, .pod .mark.fewer") == ["\u22122", "+1"]
        await it.until_text("#side", "1 pod to come would take 3 vreplicas.")
        await it.tab.keyboard.press("Escape")
        await it.until_count(".mark.more, .mark.fewer, .notice.what-if, form", 0)
        await it.until_text("#side h2", "Attention")


@pytest.mark.parametrize(
    ("button", "asked"),
    [
        pytest.param("What if this node is drained?", {"drain": ["node/node-1"]}, id="drained"),
        pytest.param("\u2026 is lost?", {"fail": ["node/node-1"]}, id="lost"),
    ],
)
async def test_what_if_begins_with_what_is_looked_at(button: str, asked: dict[str, list[str]]):
    answers = Answers(plan=PLANNED)
    async with served(a_page(small().state), answers) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)
        await it.find("node-1")
        await it.tab.click(f"text={button}")
        await it.tab.click("text=Show the plan")
        await it.until_text("#side", "The plan")
        assert answers.asked == [{"pool": POOL, "autoscale": True, **asked}]


async def test_something_to_drain_that_is_not_there_is_refused_before_it_is_asked():
    answers = Answers(plan=PLANNED)
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        await it.tab.fill("#target", "node/nothing")
        await it.tab.click("text=Show the plan")
        message = await it.tab.locator("#target").evaluate("field => field.validationMessage")
        assert message.startswith("Name a pod, node or zone of this pool")
        assert answers.asked == []


async def test_a_typing_error_is_told_and_what_is_typed_next_is_taken():
    answers = Answers(plan=PLANNED)
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        await it.tab.fill("#target", "node/nothing")
        await it.tab.click("text=Add")
        await it.tab.fill("#target", "node-1")
        await it.tab.click("text=Add")
        await it.tab.fill("[name=maxPods]", "4")
        await it.tab.fill("[name=vpods]", "1")
        await it.tab.fill("[name=namespace]", "newcomer")
        await it.tab.click("text=Show the plan")
        await it.until_text("#side", "The plan")
        (asked,) = answers.asked
        assert (asked["drain"], asked["set"]) == (["node/node-1"], {"maxPods": 4})
        assert [vpod["namespace"] for vpod in asked["addVPods"]] == ["newcomer"]  # type: ignore[attr-defined]


async def test_a_vpod_of_another_pool_is_found_by_its_whole_name():
    cluster = small()
    cluster.state.adapter_pool_changed(None, a_pool(name="broker", stateful_set="broker"))
    answers = Answers(explain={**EXPLAINED, "pool": POOL})
    fragment = f"pool={NS}/broker"
    async with (
        served(a_page(cluster.state), answers) as url,
        browsing(url, fragment=fragment) as it,
    ):
        await it.until_text("#side", "Pools (2)")
        await it.find("orders-3")
        await it.until_text("#found", "nothing found in this pool; a vpod's whole name")
        await it.tab.fill("#search", "alpine/orders-3")
        await it.until_text("#found", "look for alpine/orders-3 in the other pools")
        await it.tab.keyboard.press("Enter")
        await it.until_text("#side h2", "alpine/orders-3")
        await it.until_pods(6)
        assert await it.tab.locator("#pool").input_value() == POOL
        await it.tab.fill("#search", "broker")
        await it.tab.keyboard.press("Enter")
        await it.until_pods(0)
        assert await it.tab.locator("#pool").input_value() == f"{NS}/broker"


async def test_a_vpod_that_is_in_no_pool_is_told_so():
    cluster = small()
    cluster.state.adapter_pool_changed(None, a_pool(name="broker", stateful_set="broker"))
    async with served(a_page(cluster.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#side", "Pools (2)")
        await it.find("some/body")
        await it.until_text(".notice.bad", "some/body: ")


async def test_of_a_pool_that_is_not_known_nothing_good_is_said():
    async with (
        served(a_page(small().state)) as url,
        browsing(url, fragment=f"pool={NS}/nothing") as it,
    ):
        await it.until_text(".notice.bad", "is not known here")
        await it.until_text("#side", "nothing can be said of it")
        assert "every pod takes work" not in " ".join(await it.texts("#side"))


async def test_a_replica_that_cannot_plan_says_so():
    async with served(a_page(small().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        await it.tab.click("text=Show the plan")
        await it.until_text("#side .bad", "This replica does not answer such questions.")


async def test_the_map_is_walked_by_keys():
    async with served(a_page(small().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)

        async def focused() -> str:
            return str(
                await it.tab.evaluate(
                    "document.activeElement.dataset.name ?? document.activeElement.id"
                )
            )

        await it.tab.locator("#map [tabindex='0']").focus()
        assert await it.tab.locator("#map [tabindex='0']").count() == 1
        await it.tab.keyboard.press("Home")
        walked = []
        for key in (
            "PageDown",
            "ArrowRight",
            "ArrowDown",
            "ArrowDown",
            "ArrowUp",
            "ArrowRight",
            "PageUp",
            "End",
        ):
            await it.tab.keyboard.press(key)
            walked.append(await focused())
        assert walked == [
            "zone-a",
            "node-0",
            "dispatcher-0",
            "dispatcher-3",
            "dispatcher-0",
            "node-1",
            "zone-b",
            "dispatcher-2",
        ]
        assert await it.tab.locator("#map [tabindex='0']").count() == 1
        await it.tab.keyboard.press("Enter")
        await it.until_text("#side h2", "pod dispatcher-2")
        await it.tab.keyboard.press("Escape")
        await it.until_text("#side h2", "Attention")
        assert await focused() == "dispatcher-2"
        await it.tab.keyboard.press("/")
        assert await focused() == "search"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "${alert(1)}",
    "javascript:alert(1)",
    "__proto__",
    "constructor",
    "\u202egpj.exe",
    "a" * 5_000,
)


async def test_names_are_text_whatever_they_say():
    """The API server refuses such names; the page does not rely on it."""
    scene = Scene(replicas=1)
    scene.node(a_node("node-0", HOSTILE[0]))
    scene.pod(0, {f"{name}/{name}": 1 for name in HOSTILE})
    for name in HOSTILE:
        vpod = VPod(
            namespace=name, name=name, pool=POOL, vreplicas=2, placements={"dispatcher-0": 1}
        )
        scene.state.vpod_changed(None, vpod)
    answers = Answers(
        {
            "outcome": HOSTILE[0],
            "steps": [HOSTILE[1]],
            "fixes": [{"change": HOSTILE[0]}],
            "history": [],
        }
    )
    async with served(a_page(scene.state), answers) as url, browsing(url) as it:
        await it.until_pods(1)
        await it.tab.evaluate(
            "() => { window.alert = () => { throw new Error('a name was run') } }"
        )
        for name in HOSTILE[:6]:
            await it.find(f"{name}/{name}")
            await it.until_text("#side h2", name)
        await it.until_text(".explanation", HOSTILE[0])
        await it.tab.click("#what-if")
        await it.tab.keyboard.press("Escape")
        await it.tab.click("#view")
        await it.until_text("#table", HOSTILE[1])
        assert await it.tab.locator("main img, main script, main a").count() == 0
        assert await it.tab.evaluate(
            "({}).vreplicas === undefined && Object.keys(Object.prototype).length === 0"
        )


@pytest.mark.parametrize(
    ("width", "zoom"),
    [(320, 1), (390, 1), (640, 2)],
    ids=["a small phone", "a phone", "zoomed to 200 %"],
)
async def test_nothing_is_cut_off_on_a_narrow_screen(width: int, zoom: int):
    async with (
        served(a_page(small().state), Answers(EXPLAINED, PLANNED)) as url,
        browsing(url, size=(width // zoom, 700), device_scale_factor=zoom) as it,
    ):
        await it.until_pods(6)
        for step in ("map", "vpod", "what-if", "view"):
            match step:
                case "vpod":
                    await it.find("alpine/orders-0")
                case "what-if" | "view":
                    await it.tab.keyboard.press("Escape")
                    await it.tab.click(f"#{step}")
                case _:
                    pass
            wide = await it.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, step


async def test_a_replica_that_stops_is_told_and_found_again():
    page = a_page(small().state)
    gone = ("ERR_", "Failed to load")
    async with served(page) as url, browsing(url, fails=gone) as it:
        await it.until_text("#replica", "live")
        await page.streams.stop()
        await it.until_text(".notice", "Not live: ")
        assert await it.tab.locator(".pod").count() == 6
        page.streams._stopping.clear()
        await it.until_text("#replica", "replica-0: live")
        assert await it.tab.locator(".notice").count() == 0


@pytest.mark.parametrize(
    ("leader", "mode", "says"),
    [
        pytest.param(
            Leader(leads=False, leader="replica-1"),
            Mode.ACTIVE,
            "Led by replica-1",
            id="another leads",
        ),
        pytest.param(
            Leader(leads=False, leader=""), Mode.ACTIVE, "Nobody leads this pool", id="nobody leads"
        ),
        pytest.param(Leader(leads=False), Mode.SHADOW, "Shadow mode", id="shadow"),
    ],
)
async def test_a_replica_that_does_not_lead_tells_what_it_knows_and_says_so(
    leader: Leader, mode: Mode, says: str
):
    async with served(a_page(small().state, leader, mode=mode)) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.until_text(".notice", says)


async def test_the_theme_is_chosen_and_remembered():
    async with served(a_page(small().state)) as url, browsing(url) as it:
        await it.until_pods(6)

        async def ground() -> str:
            return str(await it.tab.evaluate("getComputedStyle(document.body).backgroundColor"))

        light = await ground()
        await it.tab.select_option("#theme", "dark")
        dark = await ground()
        assert light != dark
        await it.tab.reload()
        assert await ground() == dark


async def test_changes_are_said_politely_and_not_too_often():
    scene = Scene(replicas=1)
    scene.pod(0).vpod("a", 1)
    async with served(a_page(scene.state)) as url, browsing(url) as it:
        await it.until_text("#live", "1 vreplica waiting, 0 pods not taking work")
        scene.vpod("a", 1, {0: 1})
        scene.pod(0, {"tenant/a": 1}, unschedulable=True)
        await asyncio.sleep(1)
        assert "1 vreplica waiting" in await it.text("#live")
        await it.until_text("#live", "0 vreplicas waiting, 1 pod not taking work")
