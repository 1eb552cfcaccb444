"""One thing that is wrong in a scene, for the rows of the tests of checks."""

from collections.abc import Callable

from extender.cli.doctor.checks.facts import Certificate
from extender.cli.doctor.checks.verdict import Verdict
from tests.cli.doctor.scene import Obj, Scene, a_pod, stamp

Break = Callable[[Scene], object]
E, W, U = Verdict.ERROR, Verdict.WARNING, Verdict.UNKNOWN
BROKEN = ("broken", "name", "verdict", "says")
"""What breaks a scene, the check that finds it, its verdict, and a part of its words."""
MAY_FOLLOW = {
    "handoff": {"served"},
    "api-server": {"version-skew"},
    "webhook-registration": {
        "rights",
        "shared-pools",
        "webhook-selectors",
        "webhook-certificate",
        "webhook-endpoints",
    },
    "webhook-certificate": {"rights", "leader"},
    "overcommit": {"ledger-drift", "capacity"},
    "slots-resource": {"kube-scheduler"},
    "ledger-drift": {"overcommit"},
    "placements-gone": {"ledger-drift", "served", "pools", "pool-names"},
    "pools": {"webhook-selectors"},
    "pool-names": {"capacity", "ledger-drift", "overcommit"},
    "capacity": {"profiles", "pool-names"},
}
"""What else the same thing may be wrong with."""


def unbound(age_s: float, **status: object) -> Obj:
    pod = a_pod(2, node="")
    pod["metadata"]["creationTimestamp"] = stamp(age_s)
    pod["status"] |= status
    return pod


def set_on_first(plural: str, *path: str, value: object) -> Break:
    def change(scene: Scene) -> None:
        obj = scene.first(plural)
        for step in path[:-1]:
            obj = obj[step]
        if value is None:
            del obj[path[-1]]
        else:
            obj[path[-1]] = value

    return change


def add(plural: str, obj: Obj) -> Break:
    return lambda scene: scene.items(plural).append(obj)


def empty(plural: str) -> Break:
    return lambda scene: scene.items(plural).clear()


def webhook(**fields: object) -> Break:
    return lambda scene: scene.first("mutatingwebhookconfigurations")["webhooks"][0].update(fields)


def by_url(shown: Certificate) -> Break:
    def change(scene: Scene) -> None:
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for hook in scene.first(plural)["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"]["url"] = f"https://10.1.1.1:8443{path}"
        scene.more["certificates"] = {
            f"https://10.1.1.1:8443{path}": shown for path in ("/mutate", "/validate")
        }

    return change


def assert_found_alone(broken: Break, name: str, verdict: Verdict, says: str) -> None:
    """Breaks one thing: its check finds it, and no other check but those that may follow."""
    scene = Scene()
    broken(scene)
    results = scene.results()
    found = results[name]
    assert found.verdict is verdict
    assert says in " ".join((found.summary, *found.evidence))
    assert found.fix
    others = {
        other for other, one in results.items() if one.verdict not in {Verdict.OK, Verdict.SKIPPED}
    } - {name}
    assert others <= MAY_FOLLOW.get(name, set())
