"""TLS towards a running service: its CA, and our client certificate, from files."""

import ssl

from extender.core.errors import VReplicaError


def client_context(files: tuple[str, str, str]) -> ssl.SSLContext | None:
    """``files``: certificate, key, CA, each "" for none; None where all are. Raises VReplicaError for files that do not load."""
    certificate, key, authority = files
    if not any(files):
        return None
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise VReplicaError(f"the client's certificates do not load: {error}") from error
    return context
