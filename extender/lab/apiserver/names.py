"""The allowed forms of names, and the API server's messages about them."""

import re
from functools import lru_cache
from typing import Final

from extender.config.kube_scheduler import qualified_name_errors

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@lru_cache(maxsize=4096)
def is_qualified(key: str) -> bool:
    """Return whether the text is a qualified name, as keys of labels are: a name, and before it
    optionally a domain and a slash.
    """
    return not qualified_name_errors(key)
