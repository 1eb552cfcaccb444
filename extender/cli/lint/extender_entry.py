"""Checks our own entry of ``extenders``: verbs, address, timeout, TLS and resources."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from extender.cli.lint.codes import Subject
from extender.config.kube_scheduler import DEFAULT_HTTP_TIMEOUT_S
from extender.config.kube_scheduler_file import duration_s
from extender.config.model import LOOPBACK, Config, ServerConfig
from extender.config.nearest import did_you_mean, with_hint
from extender.model.names import SLOTS_RESOURCE
from extender.model.reading import Json, mapping, mappings, text

PATH: Final = "/v1"
VERBS: Final = ("filter", "prioritize", "bind", "preempt")
TIMEOUT_LEAST_S: Final = 0.01
"""A smaller value must be meant in another unit."""


def check_extender(
    subject: Subject, index: int, given: Config | None, *, legacy: bool, shared: bool
) -> None:
    """Add what is wrong with ``extenders[index]``. ``given``: the service's configuration, if
    known.

    ``shared``: it is the cluster's own kube-scheduler, which places all pods.
    """
    config = given or Config()
    entry = _Entry(
        subject, mappings(subject.raw, "extenders")[index], f"extenders[{index}]", legacy=legacy
    )
    entry.check_verbs(narrowed=given is None or bool(given.narrow_to))
    entry.check_resources(given, shared=shared)
    entry.check_timeout(config.server.deadline_s)
    entry.check_address(given)
    if entry.raw.get("ignorable") is True and text(entry.raw, "bindVerb"):
        entry.found("VS102", "ignorable", "ignorable: true with a bindVerb")
    if entry.raw.get("nodeCacheCapable") is not True:
        entry.found("VS108", "nodeCacheCapable", "is not true")


class _Entry:
    """One extender's entry."""

    def __init__(self, subject: Subject, raw: Json, path: str, *, legacy: bool) -> None:
        self.raw = raw
        self._subject = subject
        self._path = path
        self._legacy = legacy
        self._https_field = "enableHttps" if legacy else "enableHTTPS"

    def found(self, code: str, field: str, message: str) -> None:
        """Add a finding at a field of the entry."""
        self._subject.found(code, f"{self._path}.{field}", message)

    def check_verbs(self, *, narrowed: bool) -> None:
        """Check that the verbs have the service's names. ``narrowed``: filter chooses the node, so
        prioritize is not needed.
        """
        for verb in VERBS:
            field = f"{verb}Verb"
            given = text(self.raw, field)
            if given and given != verb:
                self.found("VS114", field, with_hint(f"{given!r:.80}", did_you_mean(given, VERBS)))
        for verb in ("filter", "bind"):
            if not text(self.raw, f"{verb}Verb"):
                self.found("VS119", f"{verb}Verb", "is not set")
        if not text(self.raw, "preemptVerb"):
            self.found("VS120", "preemptVerb", "is not set")
        if not text(self.raw, "prioritizeVerb") and not narrowed:
            self.found("VS121", "prioritizeVerb", "is not set")

    def check_resources(self, given: Config | None, *, shared: bool) -> None:
        """Check managedResources. In a shared kube-scheduler, it limits calls to adapter pods, if
        these request the resource.
        """
        for index, one in enumerate(mappings(self.raw, "managedResources")):
            if text(one, "name") == SLOTS_RESOURCE:
                if one.get("ignoredByScheduler") is not True:
                    where = f"managedResources[{index}].ignoredByScheduler"
                    self.found("VS105", where, "is not true")
                if given is not None and not given.slots_resource:
                    self.found(
                        "VS124",
                        "managedResources",
                        f"contains {SLOTS_RESOURCE}, but slotsResource is false",
                    )
                return
        if shared:
            self.found("VS104", "managedResources", f"does not contain {SLOTS_RESOURCE}")
        if given is not None and given.slots_resource:
            self.found(
                "VS125",
                "managedResources",
                f"does not contain {SLOTS_RESOURCE}, but slotsResource is true",
            )

    def check_timeout(self, deadline_s: float) -> None:
        """Compare httpTimeout with the service's deadline."""
        raw = self.raw.get("httpTimeout")
        timeout_s = self._timeout_s(raw)
        if timeout_s is None:
            return
        if self._legacy and 0 < timeout_s < TIMEOUT_LEAST_S:
            self.found("VS107", "httpTimeout", f"{raw} nanoseconds")
        elif (timeout_s or DEFAULT_HTTP_TIMEOUT_S) <= deadline_s:
            self.found(
                "VS106",
                "httpTimeout",
                f"{timeout_s or DEFAULT_HTTP_TIMEOUT_S:g} s, the service answers within "
                f"{deadline_s:g} s",
            )

    def _timeout_s(self, raw: object) -> float | None:
        """Seconds, 0 for the default; None if kube-scheduler refuses the value, which is reported
        elsewhere.
        """
        if raw is None:
            return 0.0
        if self._legacy:
            return raw / 1e9 if type(raw) is int else None
        try:
            return duration_s(raw) if isinstance(raw, str) else None
        except ValueError:
            return None

    def check_address(self, given: Config | None) -> None:
        """Check urlPrefix and TLS, and whether they match how the service listens."""
        prefix = text(self.raw, "urlPrefix")
        try:
            url = urlsplit(prefix)
            port = url.port or (443 if url.scheme == "https" else 80)
        except ValueError as error:
            self.found("VS111", "urlPrefix", f"{prefix!r:.120}: {error}")
            return
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            self.found("VS111", "urlPrefix", f"{prefix!r:.120} is not an http:// or https:// URL")
            return
        if url.path.rstrip("/") != PATH:
            self.found("VS111", "urlPrefix", f"the path is {url.path!r:.80}, not {PATH}")
        self._check_tls(url)
        if given is not None:
            self._check_listener(url, port, given.server)

    def _check_listener(self, url: SplitResult, port: int, server: ServerConfig) -> None:
        if server.port and port != server.port:
            self.found("VS118", "urlPrefix", f"port {port}, the service listens on {server.port}")
        if (url.scheme == "https") is not bool(server.tls.cert_file):
            has = "has" if server.tls.cert_file else "has no"
            self.found("VS118", "urlPrefix", f"{url.scheme}://, the service {has} server.tls")
        # localhost stands for both IP families, a loopback address for one.
        apart = url.hostname not in LOOPBACK or {server.host, url.hostname} == LOOPBACK - {
            "localhost"
        }
        if server.host in LOOPBACK and apart:
            self.found(
                "VS118",
                "urlPrefix",
                f"host {url.hostname!r:.80}, the service listens on {server.host}",
            )

    def _check_tls(self, url: SplitResult) -> None:
        tls = mapping(self.raw, "tlsConfig")
        switched = self.raw.get(self._https_field) is True
        if url.scheme == "http":
            if switched:
                self.found("VS113", self._https_field, "with an http:// prefix")
            elif url.hostname not in LOOPBACK:
                self.found("VS117", "urlPrefix", f"http:// to {url.hostname!r:.80}")
            return
        authority = text(tls, "caFile") or text(tls, "caData")
        if tls.get("insecure") is True or not authority:
            why = "insecure: true" if tls.get("insecure") is True else "neither caFile nor caData"
            self.found("VS103", "tlsConfig", why)
        if not (text(tls, "certFile") or text(tls, "certData")):
            self.found("VS116", "tlsConfig", "neither certFile nor certData")
