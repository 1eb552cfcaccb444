"""The usual mistakes of a first hour, each in one line that names the fix.

``describe_error`` makes the line for an error that ends a command. Errors that it does not know are
printed unchanged: each of ours names its object, field and problem.
"""

import errno
import re
from typing import Final, NamedTuple

from extender.kube.api import ApiError, ConnectError, Forbidden, NotFound, OutcomeUnknown, Resource
from extender.model.names import GROUP
from extender.telemetry.one_line import one_line


def describe_error(error: BaseException) -> str:
    """One line: what is wrong, and what to do about it."""
    text = one_line(" ".join(str(error).split())) or type(error).__name__
    fix = _fix(error, text)
    return f"{text}. {fix}" if fix else text


class ListingTrouble(NamedTuple):
    """A kind that cannot be listed or watched: the problem in one line, and the fix, "" if
    unknown.
    """

    problem: str
    fix: str

    @property
    def line(self) -> str:
        """The problem and the fix."""
        return f"{self.problem}. {self.fix}" if self.fix else self.problem


def listing_trouble(resource: Resource, error: ApiError) -> ListingTrouble:
    """Explain the error of a list or a watch of a kind. Commands and the service's log use the same
    words.
    """
    what = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    detail = one_line(" ".join((error.message or error.reason).split()))
    match error:
        case NotFound():
            # An API server that has never heard of the group answers in plain text, not with a
            # metav1.Status.
            problem = f"the cluster does not serve {what}"
        case Forbidden():
            problem = f"{what} may not be listed: {detail}"
        case OutcomeUnknown():
            problem = f"the API server did not answer for {what}: {detail}"
        case _ if error.status == 401:
            problem = f"the API server does not know us (401) when asked for {what}: {detail}"
        case _:
            problem = f"{what}: {one_line(' '.join(str(error).split()))}"
    return ListingTrouble(problem, _fix(error, f"{what}: {error}"))


class Usual(NamedTuple):
    """A usual mistake and its fix. Matches errors of ``kind`` whose text matches ``text``, with
    errno or status ``number`` (0: any).
    """

    mistake: str
    kind: type[BaseException]
    fix: str
    text: str = ""
    number: int = 0


USUAL: Final = (
    Usual(
        "no cluster: there is no kubeconfig",
        ConnectError,
        "Set KUBECONFIG or give --kubeconfig FILE; without any cluster try `vreplica run`.",
        text="no kubeconfig given",
    ),
    Usual(
        "a kubeconfig that cannot be used",
        ConnectError,
        "Check the file with `kubectl --kubeconfig FILE cluster-info`.",
    ),
    Usual(
        "an API server that is not trusted",
        OutcomeUnknown,
        "The API server's certificate is not trusted: check certificate-authority-data in the "
        "kubeconfig.",
        text=r"certificate.verify|self.signed",
    ),
    Usual(
        "no cluster: nobody answers",
        OutcomeUnknown,
        "The API server cannot be reached: is the cluster up, and is it the right context "
        "(`kubectl config get-contexts`)?",
        text=r"connect|refused|name or service|nodename|resolve|unreachable|timed? ?out"
        r"|none within",
    ),
    Usual(
        "no permission",
        Forbidden,
        "This user may not do that: try `kubectl auth can-i --list`; the chart (`helm template`) "
        "and manifests/base have "
        "the roles that each part needs.",
    ),
    Usual(
        "the CRDs are missing",
        NotFound,
        "Our kinds are not installed: install the chart with helm (docs/install.md), or, where you "
        "install without Helm, "
        "`kubectl apply -k manifests/crds`.",
        text=rf"{re.escape(GROUP)}|could not find the requested resource",
    ),
    Usual(
        "credentials that have expired",
        ApiError,
        "The credentials are not accepted: log in again, or check the user in the kubeconfig.",
        number=401,
    ),
    Usual(
        "the port is taken",
        OSError,
        "Another program listens there: stop it, or choose another port (server.port, --port; 0 "
        "takes a free one).",
        number=errno.EADDRINUSE,
    ),
    Usual(
        "a port, or a file, that needs rights",
        OSError,
        "Ports below 1024 and files of others need rights: choose another port, or look at the "
        "file's owner.",
        number=errno.EACCES,
    ),
    Usual(
        "an address of another machine",
        OSError,
        "No interface of this machine has that address: check server.host.",
        number=errno.EADDRNOTAVAIL,
    ),
)
"""The first match counts."""


def _fix(error: BaseException, text: str) -> str:
    number = getattr(error, "status", None) or getattr(error, "errno", None) or 0
    for usual in USUAL:
        if (
            isinstance(error, usual.kind)
            and (not usual.number or usual.number == number)
            and re.search(usual.text, text, re.IGNORECASE)
        ):
            return usual.fix
    return ""
