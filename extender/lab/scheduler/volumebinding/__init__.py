"""kube-scheduler's volume binder (``pkg/scheduler/framework/plugins/volumebinding``): a claim that
waits for its first consumer gets a volume on the node that its pod goes to.

::

    pre_filter  claims of the pod: bound, or waiting          binder.get_pod_volume_claims
    filter      on each node: a free volume that fits, or     binder.find_pod_volumes
                room to provision one
    reserve     volumes and claims assumed in the caches      binder.assume_pod_volumes
    pre_bind    written, and waited for until they are bound  binder.bind_pod_volumes
    unreserve   after any failure                             binder.revert_assumed_pod_volumes

The assume caches are the engine's (``extender.engine.cache``), which mirror this very system.
"""
