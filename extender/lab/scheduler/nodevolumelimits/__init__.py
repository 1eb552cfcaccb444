"""How many volumes a node can have attached
(``pkg/scheduler/framework/plugins/nodevolumelimits``).

``csi`` counts the volumes of CSI drivers against the limits in the node's CSINode. kube-scheduler
1.36 and later have only that plugin. ``in_tree`` has the plugins for volumes of in-tree plugins,
which kube-scheduler 1.22 has, and a legacy Policy names.
"""
