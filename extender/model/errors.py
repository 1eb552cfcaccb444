"""The errors that this project raises. A pod that does not fit is no error but a
``ConflictReason``.
"""


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
    """The API server no longer has a version that it has shown before: etcd was restored from a
    backup.

    Caches, reservations, doubts and the knowledge of who holds a Lease are worthless then. No code
    catches this error and keeps any of them: the process ends, and starts again from what is
    stored.
    """


class LedgerUnreadable(VReplicaError):
    """A placements annotation that is not the JSON of a ledger (DESIGN 2)."""


class LedgerTooLarge(VReplicaError):
    """A ledger that would be longer than ``LEDGER_BYTES_MAX``."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"ledger of {size_bytes} bytes is over the limit of {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class WireError(VReplicaError):
    """A request body that kube-scheduler never sends. ``status``: HTTP status of the reply."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class AssumeError(VReplicaError):
    """Base of the errors of ``AssumeCache``. ``key`` names the object."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class NotFound(AssumeError):
    """No object is stored under that key (assumecache's ErrNotFound)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"could not find object {key!r}", key)


class WrongType(AssumeError):
    """The offered value is no object with a key and a version (assumecache's ErrWrongType)."""


class VersionConflict(AssumeError):
    """The offered version does not match the stored one."""

    def __init__(self, key: str, stored: str, offered: str) -> None:
        super().__init__(
            f"object {key!r}: stored version {stored!r} does not go with offered {offered!r}", key
        )
        self.stored = stored
        self.offered = offered
        self.stored = stored
        self.offered = offered
