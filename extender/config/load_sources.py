"""``loadSources``: the Prometheus queries that pools may take their load from.

.. code-block:: yaml

    loadSources:
      - name: adapter-requests      # an AdapterPool names it in spec.loadSource
        url: https://prometheus.monitoring.svc:9090     # /api/v1/query is added
        query: sum by (vpod_namespace, vpod, pod) (rate(adapter_requests_total{namespace="$namespace"}[2m]))
        labels: {vpodNamespace: vpod_namespace, vpod: vpod, pod: pod}
        caFile: ""                  # PEM; "": the authorities of the operating system
        tokenFile: ""               # sent as a bearer token, over https only; read for each query
        periodSeconds: 30
        timeoutSeconds: 10

In a query, ``$namespace``, ``$pool`` and ``$statefulSet`` stand for the pool's. They are names of
Kubernetes objects, so they end no string of a query. Any other ``$name`` is refused, unless a
regular expression of the query has a group of that name (for ``label_replace``). If ``labels.vpodNamespace`` is empty, the
label of the vpod has its whole key.

A pool names a source and never a URL or a query (docs/security.md).
"""  # noqa: E501 (a query is one line)

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from extender.config.model import DNS_LABEL
from extender.config.nearest import did_you_mean
from extender.model.objects import AdapterPool
from extender.model.safe_repr import safe_repr

QUERY_CHARS_MAX: Final = 4096
"""It is sent in a URL."""
URL_CHARS_MAX: Final = 1024
PERIOD_S: Final = 30.0
PERIOD_MIN_S: Final = 5.0
PERIOD_MAX_S: Final = 120.0
"""Shares are silent after 300 s, so one failed query more is no harm."""
TIMEOUT_S: Final = 10.0
TIMEOUT_MIN_S: Final = 0.1
LABEL: Final = "[a-zA-Z_][a-zA-Z0-9_]{0,127}"
FIELDS: Final = (
    *("name", "url", "query", "labels", "caFile", "tokenFile"),
    *("periodSeconds", "timeoutSeconds"),
)
LABEL_FIELDS: Final = ("vpodNamespace", "vpod", "pod")

PLACEHOLDERS: Final = ("$namespace", "$pool", "$statefulSet")
_PLACEHOLDER: Final = re.compile(r"\$(namespace|pool|statefulSet)\b")
_LIKE_A_PLACEHOLDER: Final = re.compile(r"\$([a-zA-Z_]\w*|\{[a-zA-Z_]\w*\})", re.ASCII)
_ADDED: Final = re.compile(r"/api/v1(/.*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels of a series that name what its value is about. ``vpod_namespace``: "" if the label
    ``vpod`` has the whole key.
    """

    vpod_namespace: str = "vpod_namespace"
    vpod: str = "vpod"
    pod: str = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSource:
    """One entry of ``loadSources``."""

    name: str
    url: str
    query: str
    labels: Labels = field(default_factory=Labels)
    ca_file: str = ""
    token_file: str = ""
    period_s: float = PERIOD_S
    timeout_s: float = TIMEOUT_S

    def query_for(self, pool: AdapterPool) -> str:
        """The query with the pool's names in it."""
        names = {"namespace": pool.namespace, "pool": pool.name, "statefulSet": pool.stateful_set}
        return _PLACEHOLDER.sub(lambda found: names[found[1]], self.query)


class Problem(NamedTuple):
    """What is wrong at ``path`` of the file."""

    path: str
    text: str
    hint: str = ""


def load_sources_of(documents: Sequence[Mapping[str, object]]) -> Mapping[str, LoadSource]:
    """The sources by name. ``documents`` have no problems (``problems_of``)."""
    return {source.name: source for source in map(_source, documents)}


def problems_of(documents: Sequence[Mapping[str, object]]) -> Iterator[Problem]:
    """Yield what is wrong with the entries of ``loadSources``."""
    taken: set[object] = set()
    for index, document in enumerate(documents):
        where = f"loadSources[{index}]"
        name = document.get("name")
        if isinstance(name, str) and name in taken:
            yield Problem(f"{where}.name", f"{safe_repr(name, 80)} is taken")
        taken.add(name if isinstance(name, str) else None)
        yield from _unknown(where, document, FIELDS)
        yield from _texts(where, document)
        yield from _url(where, document)
        yield from _times(where, document)
        yield from _labels(f"{where}.labels", document.get("labels"))


def _unknown(where: str, document: Mapping[str, object], known: Sequence[str]) -> Iterator[Problem]:
    for name in document:
        if name not in known:
            hint = did_you_mean(str(name), known) or f"known fields: {', '.join(known)}"
            yield Problem(f"{where}.{name}", "unknown field", hint)


def _texts(where: str, document: Mapping[str, object]) -> Iterator[Problem]:
    name, query = document.get("name"), document.get("query")
    if not isinstance(name, str) or not re.fullmatch(DNS_LABEL, name):
        yield Problem(f"{where}.name", f"must be a Kubernetes name, not {safe_repr(name, 80)}")
    if not isinstance(query, str) or not 0 < len(query) <= QUERY_CHARS_MAX:
        yield Problem(f"{where}.query", f"must have 1 to {QUERY_CHARS_MAX} characters")
    else:
        yield from _unknown_placeholders(f"{where}.query", query)
    for one in ("caFile", "tokenFile"):
        if not isinstance(document.get(one), str | None):
            yield Problem(f"{where}.{one}", "must be the name of a file")


def _unknown_placeholders(where: str, query: str) -> Iterator[Problem]:
    for found in _LIKE_A_PLACEHOLDER.finditer(query):
        name = found[1].strip("{}")
        is_group = f"(?P<{name}>" in query
        if found[0] not in PLACEHOLDERS and not is_group:
            hint = did_you_mean(f"${name}", PLACEHOLDERS) or f"known: {', '.join(PLACEHOLDERS)}"
            yield Problem(where, f"unknown placeholder {safe_repr(found[0], 80)}", hint)


def _url(where: str, document: Mapping[str, object]) -> Iterator[Problem]:
    url = document.get("url")
    path = f"{where}.url"
    if not isinstance(url, str) or not 0 < len(url) <= URL_CHARS_MAX or not url.isascii():
        yield Problem(path, f"must be a URL of at most {URL_CHARS_MAX} ASCII characters")
        return
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        yield Problem(path, "is no URL")
        return
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"\s", url):
        yield Problem(path, "must begin with https:// or http:// and a host")
    if parts.username is not None or parts.query or parts.fragment:
        yield Problem(path, "must have no user, query or fragment", "use tokenFile")
    if found := _ADDED.search(parts.path.rstrip("/")):
        text = f"must end before {safe_repr(found[0], 80)}: /api/v1/query is added"
        host = parts.netloc.rpartition("@")[2]
        right = f"{parts.scheme}://{host}{parts.path[: found.start()]}"
        yield Problem(path, text, f"write {safe_repr(right, URL_CHARS_MAX)}")
    if parts.scheme == "http":
        for one in ("tokenFile", "caFile"):
            if document.get(one):
                yield Problem(f"{where}.{one}", "needs a url with https")


def _times(where: str, document: Mapping[str, object]) -> Iterator[Problem]:
    period = _number(document.get("periodSeconds"), PERIOD_S)
    timeout = _number(document.get("timeoutSeconds"), TIMEOUT_S)
    if period is None or not PERIOD_MIN_S <= period <= PERIOD_MAX_S:
        yield Problem(
            f"{where}.periodSeconds", f"must be a number from {PERIOD_MIN_S:g} to {PERIOD_MAX_S:g}"
        )
        return
    if timeout is None or not TIMEOUT_MIN_S <= timeout <= period:
        yield Problem(
            f"{where}.timeoutSeconds", f"must be a number from {TIMEOUT_MIN_S:g} to periodSeconds"
        )


def _labels(where: str, value: object) -> Iterator[Problem]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield Problem(where, "must be a mapping", f"with the fields {', '.join(LABEL_FIELDS)}")
        return
    yield from _unknown(where, value, LABEL_FIELDS)
    for name in LABEL_FIELDS:
        label = value.get(name)
        empty = label is None or (name == "vpodNamespace" and label == "")
        if not empty and not (isinstance(label, str) and re.fullmatch(LABEL, label)):
            yield Problem(f"{where}.{name}", f"must be a label's name, not {safe_repr(label, 80)}")


def _number(value: object, default: float) -> float | None:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _source(document: Mapping[str, object]) -> LoadSource:
    labels = document.get("labels")
    given = labels if isinstance(labels, Mapping) else {}
    known = Labels()
    namespace = given.get("vpodNamespace")
    return LoadSource(
        name=str(document["name"]),
        url=str(document["url"]).rstrip("/"),
        query=str(document["query"]),
        labels=Labels(
            vpod_namespace=known.vpod_namespace if namespace is None else str(namespace),
            vpod=str(given.get("vpod") or known.vpod),
            pod=str(given.get("pod") or known.pod),
        ),
        ca_file=str(document.get("caFile") or ""),
        token_file=str(document.get("tokenFile") or ""),
        period_s=_number(document.get("periodSeconds"), PERIOD_S) or PERIOD_S,
        timeout_s=_number(document.get("timeoutSeconds"), TIMEOUT_S) or TIMEOUT_S,
    )
