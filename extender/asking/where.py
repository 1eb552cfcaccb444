"""Where an answer comes from: files, a running service, or the live cluster; the options that say so are one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.asking.files import read_files
from extender.asking.live import open_live, read_cluster
from extender.core.manifests import Manifests
from extender.core.policy.profile import Profile
from extender.core.policy.profiles import BUILT_IN_PROFILES
from extender.kube.replica_access import ReplicaAccess
from extender.terminal.cluster_access import ClusterAccess
from extender.terminal.progress import Tell, untold


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """``files`` or ``replica``; with neither, the ``cluster``. ``profiles``: all that pools may name.

    ``cluster.namespace``: of names that say none, "" for any.
    """

    files: tuple[str, ...] = ()
    replica: ReplicaAccess = field(default_factory=ReplicaAccess)
    cluster: ClusterAccess = field(default_factory=ClusterAccess)
    profiles: Mapping[str, Profile] = field(default_factory=lambda: BUILT_IN_PROFILES)

    async def read(self, command: str, tell: Tell = untold) -> Manifests:
        """The objects, from files or the cluster; ``tell`` hears how far it is. Raises InvalidObject, CannotRead."""
        if self.files:
            return read_files(self.files, command)
        async with open_live(self.cluster) as api:
            return await read_cluster(api, command, tell)
