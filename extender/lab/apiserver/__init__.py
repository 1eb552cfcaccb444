"""An API server in memory: requests, admission, storage and watches."""
