"""Files that other programs read while they are replaced."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file in one step: a reader gets all of the old content or of the new one. Raises
    OSError.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
