"""Where a replica of the service is, and what it takes to be let in: apart from ``replica``, for who only reads options."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAccess:
    """``url`` without a slash at its end, "" where none is asked; files of certificates and their key, "" for none."""

    url: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
