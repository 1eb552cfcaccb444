"""Where an answer comes from: files, a running service, or the live cluster; the options that say so are one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.asking.files import read_files
from extender.asking.live import connect, read_cluster
from extender.asking.output import Tell, untold
from extender.core.manifests import Manifests
from extender.core.policy.profile import Profile
from extender.core.policy.profiles import BUILT_IN_PROFILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """``files`` or ``server``; with neither, the cluster of kubeconfig and context. ``profiles``: all that pools may name.

    ``namespace``: of names that say none; ``client_files``: certificate, key and CA for a service over TLS.
    """

    files: tuple[str, ...] = ()
    server: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    client_files: tuple[str, str, str] = ("", "", "")
    profiles: Mapping[str, Profile] = field(default_factory=lambda: BUILT_IN_PROFILES)

    async def read(self, command: str, tell: Tell = untold) -> Manifests:
        """The objects, from files or the cluster; ``tell`` hears how far it is. Raises InvalidObject, CannotRead."""
        if self.files:
            return read_files(self.files, command)
        async with await connect(self.kubeconfig, self.context) as api:
            return await read_cluster(api, command, tell)
