"""The folder that the kit shares with an adapter that runs already.

::

    ca.crt, token   what the adapter needs
    work.jsonl      what it writes
    ca.key          of the authority
    kit.json        the pod's UID, and how many rounds were played

Everything stays from run to run. An adapter that runs on knows the authority, the pod's UID and the
greatest generation of the run before, and is right to take nothing else.
"""

import json
import secrets
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from extender.model.errors import VReplicaError
from webhook.x509 import Pair, certificates_in, is_valid, new_authority, signer

CA, CA_KEY, TOKEN, STATE, WORK_LOG = "ca.crt", "ca.key", "token", "kit.json", "work.jsonl"
FILE_BYTES_MAX: Final = 64 * 1024


class SharedFolder:
    """``uid`` and ``token`` are the adapter pod's, ``pair`` is the authority."""

    def __init__(self, path: Path) -> None:
        """Make what is missing. Raises OSError, and VReplicaError if the files are not the
        kit's.
        """
        self.path = path.absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / STATE).exists():
            self._make()
        self.pair = Pair(self._read(CA), self._read(CA_KEY))
        authority = signer(certificates_in(self.pair.cert_pem), self.pair.key_pem)
        if authority is None or not is_valid(authority, datetime.now(UTC)):
            raise self._unusable(f"{CA} and {CA_KEY} are no authority that is valid now")
        self.token = self._read(TOKEN).decode(errors="replace").strip()
        try:
            state = json.loads(self._read(STATE))
            self.uid, self._rounds = str(state["uid"]), int(state["rounds"])
        except (ValueError, TypeError, KeyError):
            raise self._unusable(f"{STATE} cannot be read") from None

    def next_round(self) -> int:
        """Return a number that is greater than all before. Raises OSError."""
        number = self._rounds
        self._rounds += 1
        self._write_state()
        return number

    def _make(self) -> None:
        if found := [name for name in (CA, CA_KEY, TOKEN) if (self.path / name).exists()]:
            raise self._unusable(f"it has {found[0]}, which the kit has not made")
        pair = new_authority(datetime.now(UTC))
        key = self.path / CA_KEY
        key.touch(mode=0o600)
        key.write_bytes(pair.key_pem)
        (self.path / CA).write_bytes(pair.cert_pem)
        (self.path / TOKEN).write_text(secrets.token_urlsafe(32))
        self.uid, self._rounds = str(uuid.uuid4()), 0
        self._write_state()

    def _write_state(self) -> None:
        new = self.path / f"{STATE}.new"
        new.write_text(json.dumps({"uid": self.uid, "rounds": self._rounds}))
        new.replace(self.path / STATE)

    def _read(self, name: str) -> bytes:
        with (self.path / name).open("rb") as file:
            return file.read(FILE_BYTES_MAX)

    def _unusable(self, why: str) -> VReplicaError:
        return VReplicaError(f"the folder {self.path} cannot be used: {why}. Name another one")
