"""Two replicas, three pods and three vpods, in every order of what may happen, to a depth."""
