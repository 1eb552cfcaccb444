"""``vreplica config``: checks configuration files, and turns Knative's ConfigMaps into a profile.

``check`` reads a file as the program that will get it does: a VReplicaSchedulerConfiguration as our service, with all of
its profiles and plugins; a KubeSchedulerConfiguration or a Policy as kube-scheduler.
"""

from collections.abc import Sequence

import yaml

from extender.core.errors import InvalidObject
from extender.core.names import CONFIG_KIND
from extender.core.policy.knative_configmap import knative_document
from extender.profiles import load_profiles, read_config_map
from extender.service.config import config_from, read_document
from extender.sim.scheduler.config_file import InvalidConfiguration, load_configuration


def run_check(paths: Sequence[str]) -> int:
    """Check each file; one line each on success. Raises InvalidObject for the first that is wrong."""
    for path in paths:
        document = read_document(path)
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == CONFIG_KIND:
            profiles = load_profiles(config_from(document, path), path)
            print(f"{path}: {CONFIG_KIND} is valid; profiles: {', '.join(sorted(profiles))}")
        else:
            print(f"{path}: {_check_scheduler(document, path)}")
    return 0


def _check_scheduler(document: object, path: str) -> str:
    try:
        config = load_configuration(yaml.safe_dump(document))
    except InvalidConfiguration as error:
        raise InvalidObject(path, "", f"kube-scheduler would refuse it: {error}") from error
    return f"kube-scheduler would take it; extenders: {len(config.extenders)}"


def run_import_knative(name: str, scheduler: str, descheduler: str, *, ignore_unknown: bool = False) -> int:
    """Print a ``profiles`` entry for Knative's ConfigMaps in these files ("" for none). Raises InvalidObject."""
    document = knative_document(
        name,
        read_config_map(scheduler),
        read_config_map(descheduler) if descheduler else None,
        ignore_unknown=ignore_unknown,
    )
    print(yaml.safe_dump({"profiles": [document]}, sort_keys=False), end="")
    return 0
