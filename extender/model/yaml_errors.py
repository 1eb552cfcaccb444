"""``NOT_YAML``: what PyYAML raises for a text that it cannot read.

Besides its own errors: the constructors of values with a tag, ``!!int`` of nothing or ``!!timestamp
x``, raise whatever their conversion does; a value that is nested too deep ends in RecursionError.
"""

from typing import Final

import yaml

NOT_YAML: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)


def why_not_yaml(error: Exception) -> str:
    """One line of at most 300 characters: the parser tells on several where it stopped."""
    if isinstance(error, (LookupError, AttributeError)):
        return f"a value is not what its tag says ({type(error).__name__})"
    return " ".join(str(error).split())[:300]
