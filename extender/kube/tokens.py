"""``python3 -m extender.kube.tokens``: keep tokens of other ServiceAccounts in files, and renew
them.

A pod has one ServiceAccount, and the kubelet projects only that account's token. Two processes in
one pod that need different rights therefore get their tokens from a third process. Its account may
create tokens for their two accounts, and do nothing else:

    the pod's account ──► TokenRequest ──► DIR/token, of an hour, renewed after half of it
                                           DIR/ca.crt, DIR/namespace: as the kubelet would put
                                           them there

Each DIR is memory that one container mounts. Nothing is stored in the cluster, and a token that
leaks is valid for an hour at most. A file is replaced as a whole, and clients read it again within
a minute. If a token cannot be renewed, the process retries every few seconds; the old token is
valid for half an hour more. Every minute it looks whether the pod's ca.crt has changed, and what
the wall clock says: the monotonic one stands still while the machine is suspended.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from extender.kube.api import ApiError, Obj
from extender.kube.client import KubeApi
from extender.kube.files import replace_file
from extender.kube.first_errors import describe_error
from extender.model.errors import VReplicaError
from extender.telemetry.logs import LogFormat, set_up

_log: Final = logging.getLogger("tokens")
LIFETIME_S: Final = 3607
"""The lifetime to ask for, as by the kubelet. If the API server grants another one, that counts."""
RENEWED_FRACTION: Final = 0.5
"""A token is renewed after this part of its lifetime, less up to a tenth by chance."""
RETRY_PERIOD_S: Final = 5.0
LOOK_PERIOD_S: Final = 60.0
"""The longest time between two rounds."""
POD_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILE_MODE: Final = 0o440


class Issuer(Protocol):
    """Creates tokens: ``KubeApi``."""

    async def token(self, namespace: str, account: str, lifetime_s: int) -> Obj:
        """Return the TokenRequest with its token. Raises ApiError."""
        ...


@dataclass(slots=True)
class Target:
    """A ServiceAccount, and the folder for its token."""

    namespace: str
    account: str
    folder: Path
    due_s: float = 0.0
    """Monotonic time of the next request."""
    due_at: float = 0.0
    """The same by the wall clock; whichever comes first counts."""
    trouble: str = ""


class Tokens:
    """Keeps the tokens of ``targets``. ``monotonic`` and ``now``, the wall clock, in seconds."""

    def __init__(
        self,
        issuer: Issuer,
        targets: Sequence[Target],
        *,
        rng: random.Random,
        monotonic: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._issuer = issuer
        self._targets = targets
        self._rng = rng
        self._monotonic = monotonic
        self._now = now

    async def run(self) -> None:
        """Renew tokens for ever."""
        while True:
            wait_s = await self.round()
            await asyncio.sleep(wait_s)

    async def round(self) -> float:
        """Renew the tokens that are due, and what lies beside all of them. Return the seconds until
        the next round.
        """
        for target in self._targets:
            await self._look_after(target)
        due_in_s = min(target.due_s for target in self._targets) - self._monotonic()
        return min(max(0.0, due_in_s), LOOK_PERIOD_S)

    async def _look_after(self, target: Target) -> None:
        try:
            _copy_surroundings(target)
            if self._monotonic() < target.due_s and self._now() < target.due_at:
                return
            answer = await self._issuer.token(target.namespace, target.account, LIFETIME_S)
            token, granted_s = _granted(answer)
            replace_file(target.folder / "token", token.encode(), _FILE_MODE)
        except (ApiError, OSError, ValueError) as error:
            period_s, trouble = RETRY_PERIOD_S, describe_error(error)
        else:
            period_s, trouble = granted_s * RENEWED_FRACTION * self._rng.uniform(0.9, 1.0), ""
        if trouble != target.trouble:
            _log.log(
                logging.WARNING if trouble else logging.INFO,
                "token of %s/%s: %s",
                target.namespace,
                target.account,
                trouble or "renewed again",
            )
        target.trouble = trouble
        target.due_s = self._monotonic() + period_s
        target.due_at = self._now() + period_s


def _granted(answer: Obj) -> tuple[str, float]:
    """Token and lifetime, seconds. Raises ValueError."""
    try:
        token, granted = answer["status"]["token"], answer["spec"]["expirationSeconds"]
    except (KeyError, TypeError):
        raise ValueError("the API server's answer has no token") from None
    if not isinstance(token, str) or not token or not isinstance(granted, int) or granted <= 0:
        raise ValueError("the API server's answer has no token")
    return token, float(granted)


def _copy_surroundings(target: Target) -> None:
    """Write the files that lie beside a token in a pod, if they differ. Raises OSError."""
    authority = POD_FILES / "ca.crt"
    if authority.exists():
        _keep(target.folder / "ca.crt", authority.read_bytes())
    _keep(target.folder / "namespace", target.namespace.encode())


def _keep(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content, _FILE_MODE)


def _target(value: str) -> Target:
    account, _, folder = value.partition("=")
    namespace, _, name = account.partition("/")
    if not (namespace and name and folder):
        raise argparse.ArgumentTypeError(f"{value}: expected NAMESPACE/NAME=DIR")
    return Target(namespace, name, Path(folder))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="extender.kube.tokens", description="Tokens of ServiceAccounts in files."
    )
    result.add_argument(
        "--token",
        metavar="NAMESPACE/NAME=DIR",
        type=_target,
        action="append",
        required=True,
        help="keep a token of that ServiceAccount in that directory",
    )
    result.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="default: the pod's ServiceAccount"
    )
    return result


async def serve(targets: Sequence[Target], kubeconfig: str) -> None:
    """Renew tokens until SIGTERM or SIGINT. Raises VReplicaError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await KubeApi.connect(kubeconfig=kubeconfig, user_agent="vreplica-tokens") as api:
        tokens = Tokens(api, targets, rng=random.Random(), monotonic=time.monotonic, now=time.time)
        task = asyncio.create_task(tokens.run(), name="tokens")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        for each in (task, stopped):
            each.cancel()
        if task.done():
            task.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if it was stopped on request, 1 if it could not go on."""
    options = parser().parse_args(arguments)
    set_up("INFO", LogFormat.TEXT)
    try:
        asyncio.run(serve(options.token, options.kubeconfig))
    except VReplicaError as error:
        sys.stderr.write(f"tokens: {describe_error(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
