"""The admission webhook: sends adapter pods, with their vreplicas, through our scheduler."""
