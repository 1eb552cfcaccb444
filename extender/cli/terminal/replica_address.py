"""How to reach a replica of the service. Separate from ``replica``, so that reading options imports
less.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAccess:
    """``url`` has no slash at its end, and is "" if no replica is asked. The others are files with
    kubectl's option names, "" for none.
    """

    url: str = ""
    certificate_authority: str = ""
    client_certificate: str = ""
    client_key: str = ""
