"""Where a replica of the service is, and what it takes to be let in: apart from ``replica``, for
who only reads options.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAccess:
    """``url`` without a slash at its end, "" where none is asked; the others are files, "" for
    none, named as kubectl does.
    """

    url: str = ""
    certificate_authority: str = ""
    client_certificate: str = ""
    client_key: str = ""
