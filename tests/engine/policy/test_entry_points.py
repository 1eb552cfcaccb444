"""Third parties' plugins by entry points: found, and refused with the entry point's name where they
are broken.
"""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from extender.config.plugins import GROUP, BrokenPlugin, load_entry_points
from extender.engine.policy.registry import BUILT_IN_PLUGINS, Maker, PluginFactory
from extender.engine.policy.spreading import PodSpread
from extender.model.errors import InvalidObject

MINE = PluginFactory(name="Mine", filter=Maker(lambda _: PodSpread(7)))
TAKEN = PluginFactory(name="ZoneSpread", filter=Maker(lambda _: PodSpread(7)))
NOT_A_FACTORY = PodSpread(7)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """What an installed package would have."""
    module = ModuleType("acme_placing")
    vars(module).update(MINE=MINE, TAKEN=TAKEN, NOT_A_FACTORY=NOT_A_FACTORY)
    monkeypatch.setitem(sys.modules, "acme_placing", module)


def load(*points: EntryPoint):
    return load_entry_points(points)


def acme(attribute: str, name: str = "Mine") -> EntryPoint:
    return EntryPoint(name, f"acme_placing:{attribute}", GROUP)


def test_an_entry_point_adds_its_plugin_to_the_built_in_ones():
    assert dict(load(acme("MINE"))) == {**BUILT_IN_PLUGINS, "Mine": MINE}


def test_without_entry_points_there_are_the_built_in_ones():
    assert load_entry_points() == BUILT_IN_PLUGINS


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            EntryPoint("Mine", "no_such_module:X", GROUP),
            "Mine = no_such_module:X: cannot be loaded: ModuleNotFound",
        ),
        (
            acme("NO_SUCH_NAME"),
            "Mine = acme_placing:NO_SUCH_NAME: cannot be loaded: AttributeError",
        ),
        (
            acme("NOT_A_FACTORY"),
            "acme_placing:NOT_A_FACTORY: must be a PluginFactory, not PodSpread",
        ),
    ],
)
def test_a_broken_entry_point_is_named(broken: EntryPoint, message: str):
    with pytest.raises(BrokenPlugin) as caught:
        load(broken)
    assert message in str(caught.value)


def test_no_plugin_replaces_a_built_in_one():
    with pytest.raises(InvalidObject, match="plugin ZoneSpread: name: is taken"):
        load(acme("TAKEN", "ZoneSpread"))


def test_two_packages_may_not_register_the_same_name():
    with pytest.raises(BrokenPlugin, match="another package has registered that name"):
        load(acme("MINE"), acme("MINE"))
