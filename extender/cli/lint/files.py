"""Reads the files of a check, and checks each according to its kind.

If one of them is the service's own configuration, the others are compared with it. A file with
several documents, or a List as kubectl prints it, may have other objects too. These are skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.cli.lint.codes import CODES, Finding, Subject
from extender.cli.lint.scheduler_file import POLICY, check_scheduler_file
from extender.cli.lint.webhook_file import MUTATING, VALIDATING, check_webhook_file
from extender.config.document import Document, InvalidField, parse_all, read_file
from extender.config.kube_scheduler_file import KIND as SCHEDULER_KIND
from extender.config.model import LOOPBACK, Config
from extender.config.nearest import did_you_mean, with_hint
from extender.config.profiles import load_profiles
from extender.config.reading import read_config
from extender.model.errors import InvalidObject, VReplicaError
from extender.model.names import CONFIG_KIND, OWN_NAMESPACE

KINDS: Final = (CONFIG_KIND, SCHEDULER_KIND, POLICY, MUTATING, VALIDATING)
FILES_MAX: Final = 100
FINDINGS_MAX: Final = 1000


@dataclass(slots=True)
class Report:
    """The result of a check. ``summaries``: (file, kind, summary)."""

    findings: list[Finding] = field(default_factory=list)
    summaries: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(1 for one in self.findings if one.is_error)


def check_files(paths: Sequence[str]) -> Report:
    """Check all files together. Raises InvalidObject for more than ``FILES_MAX``."""
    if len(paths) > FILES_MAX:
        raise InvalidObject(
            "config check", "", f"takes at most {FILES_MAX} files, not {len(paths)}"
        )
    report = Report()
    subjects = [subject for path in paths for subject in _subjects(path, report)]
    given: Config | None = None
    for subject in subjects:
        if subject.kind == CONFIG_KIND:
            given = _check_own(subject, report) or given
    for subject in subjects:
        if subject.kind != CONFIG_KIND:
            _check_other(subject, report, given)
        report.findings += subject.findings
    del report.findings[FINDINGS_MAX:]
    return report


def _subjects(path: str, report: Report) -> Iterator[Subject]:
    """The objects of a file that can be checked. If there are none, the reason is a finding."""
    try:
        documents = parse_all(read_file(path), path)
    except InvalidObject as error:
        report.findings.append(Finding(CODES["VS001"], path, error.field, error.problem))
        return
    found = [subject for document in documents for subject in _objects(document)]
    if len(documents) > 1:
        for own in (one for one in found if one.kind == CONFIG_KIND):
            own.found(
                "VS002", "", f"must be the only document of its file, not one of {len(documents)}"
            )
    known = [subject for subject in found if subject.kind in KINDS]
    if not known:
        kinds = sorted({subject.kind for subject in found} - {""})
        message = f"holds {', '.join(kinds)[:200]}" if kinds else "holds no object with a kind"
        hint = did_you_mean(kinds[0], KINDS) if kinds else ""
        report.findings.append(
            Finding(
                CODES["VS001"],
                path,
                "kind",
                with_hint(message, hint),
            )
        )
    yield from known


def _objects(document: Document) -> Iterator[Subject]:
    value = document.value
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                yield Subject(document, item, f"items[{index}]")
    else:
        yield Subject(document, value)


def _check_own(subject: Subject, report: Report) -> Config | None:
    document = subject.document
    path = document.subject
    config, problems = read_config(document)
    for problem in problems:
        message = with_hint(problem.plain, problem.hint)
        subject.findings.append(
            Finding(CODES["VS002"], path, problem.field, message, problem.place)
        )
    if config is None:
        report.summaries.append((path, CONFIG_KIND, f"{CONFIG_KIND} is not valid"))
        return None
    summary = f"{CONFIG_KIND} is not valid"
    try:
        profiles = load_profiles(config, path, document)
        summary = f"{CONFIG_KIND} is valid; profiles: {', '.join(sorted(profiles))}"
    except InvalidField as error:
        about = error.field if error.subject == path else f"{error.subject}: {error.field}"
        subject.findings.append(Finding(CODES["VS003"], path, about, error.plain, error.place))
    except VReplicaError as error:
        subject.findings.append(Finding(CODES["VS003"], path, "profiles", str(error)))
    if config.server.insecure and config.server.host not in LOOPBACK:
        subject.found("VS004", "server.insecure", f"true, on {config.server.host!r:.80}")
    if not config.leader_election.leader_elect:
        subject.found("VS005", "leaderElection.leaderElect", "false")
    report.summaries.append((path, CONFIG_KIND, summary))
    return config


def _check_other(subject: Subject, report: Report, given: Config | None) -> None:
    kind = subject.kind
    if kind in {SCHEDULER_KIND, POLICY}:
        summary = check_scheduler_file(subject, given)
    else:
        namespace = given.leader_election.resource_namespace if given is not None else OWN_NAMESPACE
        summary = check_webhook_file(subject, namespace)
    report.summaries.append((subject.document.subject, kind, summary))
