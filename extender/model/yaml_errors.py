"""``NOT_YAML``: the exceptions that PyYAML raises for a text that it cannot read.

PyYAML's constructors of tagged values, such as ``!!int`` of nothing or ``!!timestamp x``, raise
whatever their conversion raises. A value that is nested too deep raises RecursionError.
"""

from typing import Final

import yaml

NOT_YAML: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)


def why_not_yaml(error: Exception) -> str:
    """The error on one line of at most 300 characters. PyYAML's own messages have several lines."""
    if isinstance(error, (LookupError, AttributeError)):
        return f"a value is not what its tag says ({type(error).__name__})"
    return " ".join(str(error).split())[:300]
