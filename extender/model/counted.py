"""``counted`` and ``counted_are``: a number with its noun, for messages that people read."""


def counted(number: int, noun: str) -> str:
    """``1 pod``, ``2 pods``, ``0 pods``. Each noun used here takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_are(number: int, noun: str) -> str:
    """``1 pod is``, ``2 pods are``."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"
