"""``loadSources``: what an entry may say, and what a pool's query becomes."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.config.load_sources import (
    LABEL_FIELDS,
    Labels,
    LoadSource,
    load_sources_of,
    problems_of,
)
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool
from tests.config.test_config import with_field
from tests.support.configs import config_from

ENTRY = {
    "name": "requests",
    "url": "https://prometheus.monitoring.svc:9090",
    "query": 'sum by (vpod, pod) (rate(n{namespace="$namespace"}[2m]))',
}


def test_an_entry_has_defaults_for_all_but_name_url_and_query():
    (source,) = load_sources_of([ENTRY]).values()
    assert (source.name, source.url, source.query) == tuple(ENTRY.values())
    assert (source.ca_file, source.token_file) == ("", "")
    assert source.labels == Labels(vpod_namespace="vpod_namespace", vpod="vpod", pod="pod")
    assert (source.period_s, source.timeout_s) == (30.0, 10.0)


def test_every_field_is_read():
    entry = {
        **ENTRY,
        "url": "https://p/prefix/",
        "labels": {"vpodNamespace": "", "vpod": "key", "pod": "instance"},
        "caFile": "ca.crt",
        "tokenFile": "token",
        "periodSeconds": 15,
        "timeoutSeconds": 2.5,
    }
    config = config_from(with_field("loadSources", [entry]))
    (source,) = load_sources_of(config.load_sources).values()
    assert source.url == "https://p/prefix"
    assert source.labels == Labels(vpod_namespace="", vpod="key", pod="instance")
    assert (source.ca_file, source.token_file) == ("ca.crt", "token")
    assert (source.period_s, source.timeout_s) == (15.0, 2.5)


@pytest.mark.parametrize(
    ("wrong", "field", "problem"),
    [
        ({"name": "A b"}, "name", "must be a Kubernetes name"),
        ({"name": None}, "name", "must be a Kubernetes name"),
        ({"query": ""}, "query", "1 to 4096"),
        ({"query": "x" * 4097}, "query", "1 to 4096"),
        ({"url": None}, "url", "must be a URL"),
        ({"url": "prometheus:9090"}, "url", "must begin with https:// or http://"),
        ({"url": "file:///etc/passwd"}, "url", "must begin with https:// or http://"),
        ({"url": "https://"}, "url", "must begin with https:// or http://"),
        ({"url": "https://a b"}, "url", "must begin with https:// or http://"),
        ({"url": "https://p:port"}, "url", "is no URL"),
        ({"url": "https://user:secret@p"}, "url", "must have no user"),
        ({"url": "https://p?x=1"}, "url", "must have no user, query"),
        ({"url": "https://p/x/api/v1/query"}, "url", "is added; write 'https://p/x'"),
        ({"url": "https://p/api/v1/query_range/"}, "url", "is added; write 'https://p'"),
        ({"query": "n{a='$Namespace'}"}, "query", "'$Namespace'; did you mean $namespace?"),
        ({"query": "n{a='$statefulSets'}"}, "query", "did you mean $statefulSet?"),
        ({"query": "n{a='${namespace}'}"}, "query", "did you mean $namespace?"),
        ({"query": "rate(n[$__range])"}, "query", "known: $namespace, $pool, $statefulSet"),
        ({"url": "http://p", "tokenFile": "token"}, "tokenFile", "needs a url with https"),
        ({"url": "http://p", "caFile": "ca"}, "caFile", "needs a url with https"),
        ({"tokenFile": 1}, "tokenFile", "must be the name of a file"),
        ({"periodSeconds": 1}, "periodSeconds", "from 5 to 120"),
        ({"periodSeconds": True}, "periodSeconds", "from 5 to 120"),
        ({"periodSeconds": 5, "timeoutSeconds": 6}, "timeoutSeconds", "to periodSeconds"),
        ({"timeoutSeconds": 0}, "timeoutSeconds", "must be a number from 0.1"),
        ({"labels": []}, "labels", "must be a mapping"),
        ({"labels": {"vpod": "a-b"}}, "labels.vpod", "must be a label's name"),
        ({"labels": {"pod": ""}}, "labels.pod", "must be a label's name"),
        ({"labels": {"pods": "pod"}}, "labels.pods", "unknown field"),
        ({"tokenfile": "x"}, "tokenfile", "unknown field"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_field(wrong, field, problem):
    with pytest.raises(InvalidObject) as caught:
        config_from(with_field("loadSources", [{**ENTRY, "name": "first"}, {**ENTRY, **wrong}]))
    assert f"loadSources[1].{field}: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "label_replace(n, 'pod', '$1', 'instance', '(.*):.*')",
        "label_replace(n, 'pod', '${1}-x', 'instance', '(.*):.*')",
        "label_replace(n, 'pod', '$name', 'instance', '(?P<name>.*):.*')",
        "n{pod=~'a$|b$', a='$pool-$namespace'}",
    ],
)
def test_what_stands_for_something_else_in_a_query_is_no_placeholder(query):
    assert [*problems_of([{**ENTRY, "query": query}])] == []


def test_two_entries_have_different_names():
    with pytest.raises(InvalidObject, match=r"loadSources\[1\].name: 'requests' is taken"):
        config_from(with_field("loadSources", [ENTRY, ENTRY]))


def test_a_query_has_the_names_of_its_pool():
    source = LoadSource(
        name="a",
        url="https://p",
        query='sum by (pod) (n{a="$namespace", b="$pool", pod=~"$statefulSet-[0-9]+", c="$pools"})',
    )
    pool = AdapterPool(namespace="kafka", name="d", stateful_set="dispatcher", slots_per_pod=1)
    assert source.query_for(pool) == (
        'sum by (pod) (n{a="kafka", b="d", pod=~"dispatcher-[0-9]+", c="$pools"})'
    )


values: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.floats() | st.text(max_size=6) | st.just([]) | st.just({})
)


@given(
    entry=st.dictionaries(
        st.sampled_from([*ENTRY, "labels", "caFile", "tokenFile", "periodSeconds", "x"]),
        values | st.dictionaries(st.sampled_from(LABEL_FIELDS), values),
    ).map(lambda changed: {**ENTRY, **changed})
)
def test_an_entry_without_problems_can_be_read(entry):
    if not list(problems_of([entry])):
        assert load_sources_of([entry])
