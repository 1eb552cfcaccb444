"""Hypothesis strategies: configurations, and documents that are nearly right."""

from typing import Any

from hypothesis import strategies as st

from extender.config.model import Config
from extender.config.rules import broken_rules
from extender.config.settings import SECTIONS, SETTINGS, Entry, ValueKind, with_values
from extender.engine.policy.registry import BUILT_IN_PLUGINS
from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND

PLUGINS = sorted(BUILT_IN_PLUGINS)
texts = st.sampled_from(["", "a", "127.0.0.1", "0.0.0.0", "localhost", "ü", "kube-scheduler"])
junk = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        15,
        15.0,
        2.5,
        10**7,
        "",
        "x",
        "10",
        [],
        ["a"],
        [""],
        {},
        {"a": 1},
    ]
)
"""What a field may hold by mistake; None stands for a field without a value."""
NAMES = st.sampled_from(["a", "kube-scheduler", "x-1"])
"""Of namespaces and Leases."""


def good_value(entry: Entry) -> st.SearchStrategy[Any]:
    """A value that the setting may have, as the file says it."""
    low, high = entry.setting.minimum, entry.setting.maximum
    match entry.kind:
        case ValueKind.TEXT:
            return NAMES if entry.setting.pattern else texts
        case ValueKind.CHOICE:
            return st.sampled_from(entry.choices)
        case ValueKind.FLAG:
            return st.booleans()
        case ValueKind.WHOLE:
            return st.integers(int(low or 0), int(high or 0))
        case ValueKind.NUMBER:
            return st.integers(int(low or 0) + 1, int(high or 0)) | st.floats(low, high)
        case ValueKind.TEXTS:
            names = NAMES if entry.setting.pattern else texts.filter(bool)
            return st.lists(names, max_size=3)
        case ValueKind.MAPPINGS:
            return st.lists(load_sources if entry.path == "loadSources" else profiles, max_size=2)


_plugin = st.fixed_dictionaries(
    {"name": st.sampled_from(PLUGINS) | junk},
    optional={
        "weight": st.integers(0, 100) | junk,
        "args": st.just({"MaxSkew": 1}) | junk,
        "arg": junk,
    },
)
_plugins = st.lists(_plugin, max_size=2) | junk
profiles = st.fixed_dictionaries(
    {"name": st.sampled_from(["mine", "yours", "ha", ""])},
    optional={
        "ties": st.sampled_from(["LowestOrdinal", "MostFreeZone", "RoundRobin", "First"]) | junk,
        "rules": st.just({"keepOnUnavailable": False}) | st.just({"roundRobin": None}) | junk,
        "filters": _plugins,
        "scores": _plugins,
        "deschedulers": _plugins,
        "descheduleFilters": _plugins,
        "knativeConfigMaps": st.just({"scheduler": "a.yaml", "ignoreUnknown": True}) | junk,
        "filter": junk,
    },
)

_labels = st.fixed_dictionaries(
    {},
    optional={
        "vpodNamespace": st.sampled_from(["", "ns", "a-b"]) | junk,
        "vpod": st.sampled_from(["vpod", ""]),
        "pods": junk,
    },
)
load_sources = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "A"]),
        "url": st.sampled_from(["https://p:1", "http://p/x", "p", "https://u@p", "https://p?q"]),
        "query": st.sampled_from(["up", "up"]) | junk,
    },
    optional={
        "labels": _labels | junk,
        "caFile": st.just("ca.crt") | junk,
        "tokenFile": st.just("token") | junk,
        "periodSeconds": st.sampled_from([15, 60.5]) | junk,
        "timeoutSeconds": st.sampled_from([1, 2.5, None, 10, "x", 0]),
        "insecure": junk,
    },
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Documents of which many read and many do not, for every reason that there is."""
    document: dict[str, Any] = {"apiVersion": CONFIG_API_VERSION, "kind": CONFIG_KIND}
    if draw(st.integers(0, 9)) == 0:
        document["kind"] = draw(junk)
    chosen = draw(
        st.lists(st.sampled_from(SETTINGS), max_size=6, unique_by=lambda entry: entry.path)
    )
    for entry in chosen:
        value = draw(good_value(entry) if draw(st.integers(0, 4)) else junk)
        _put(document, entry.path, value)
    if draw(st.integers(0, 5)) == 0:
        section = draw(st.sampled_from([*SECTIONS, "serverr", "server.tls.certfile"]))
        _put(document, section, draw(junk))
    return document


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *above, name = path.split(".")
    for step in above:
        inner = document.get(step)
        if not isinstance(inner, dict):
            inner = document[step] = {}
        document = inner
    document[name] = value


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Configurations that a file can say."""
    values = {entry.attributes: draw(_value_of(entry)) for entry in SETTINGS}
    config = with_values(Config(), values)
    return config if next(broken_rules(config), None) is None else Config()


def _value_of(entry: Entry) -> st.SearchStrategy[Any]:
    if entry.kind is ValueKind.MAPPINGS:
        return st.sampled_from(
            [(), ({"name": "mine"},), ({"name": "a", "scores": []}, {"name": "b"})]
        )
    if entry.kind is ValueKind.TEXTS:
        some = good_value(entry).map(entry.type)
        return some.map(lambda value: value or entry.default)
    if entry.kind is ValueKind.CHOICE:
        return st.sampled_from(entry.choices).map(entry.type)
    if entry.attributes[0] == "leader_election" and entry.kind in {
        ValueKind.WHOLE,
        ValueKind.NUMBER,
    }:
        return st.just(entry.default)  # they only go together by chance
    if entry.attributes[-1] == "insecure":
        return st.just(True)
    if "tls" in entry.attributes or entry.attributes[0] == "schedule":
        return st.just(entry.default)
    good = good_value(entry)
    return good.map(float) if entry.kind is ValueKind.NUMBER else good
