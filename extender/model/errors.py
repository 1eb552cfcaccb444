"""The errors of the core. Unfit is data (a ``ConflictReason``); what is raised here is broken."""


class VReplicaError(Exception):
    """Base of every error that this project raises on purpose."""


class InvalidObject(VReplicaError):
    """An API object or document that cannot be read.

    ``subject`` names the object (``kind namespace/name``), ``field`` the path in it, ``problem``
    what is wrong.
    """

    def __init__(self, subject: str, field: str, problem: str) -> None:
        super().__init__(f"{subject}: {field}: {problem}" if field else f"{subject}: {problem}")
        self.subject = subject
        self.field = field
        self.problem = problem


class HistoryReplaced(VReplicaError):
    """The API server has gone back to a history that lacks what it has told before: etcd was
    restored from a backup.

    Whatever is derived from the other history is worth nothing: caches, reservations, doubts, whose
    Lease it is. Nobody catches it where it would leave any of that behind: the process ends, and
    begins anew with what is there now.
    """


class LedgerUnreadable(VReplicaError):
    """A placements annotation that is not the JSON of DESIGN 2."""


class LedgerTooLarge(VReplicaError):
    """A ledger that would be longer than ``LEDGER_BYTES_MAX``."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"ledger of {size_bytes} bytes is over the limit of {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class WireError(VReplicaError):
    """A request body that is not what kube-scheduler sends. ``status`` is the HTTP status to
    answer.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class AssumeError(VReplicaError):
    """Base of what ``AssumeCache`` refuses. ``key`` names the object."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class NotFound(AssumeError):
    """No object is stored under that key (assumecache's ErrNotFound)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"could not find object {key!r}", key)


class WrongType(AssumeError):
    """Something other than an object with name and version was offered (assumecache's
    ErrWrongType).
    """


class VersionConflict(AssumeError):
    """The offered version does not go with the stored one. ``stored`` and ``offered`` say which."""

    def __init__(self, key: str, stored: str, offered: str) -> None:
        super().__init__(
            f"object {key!r}: stored version {stored!r} does not go with offered {offered!r}", key
        )
        self.stored = stored
        self.offered = offered
