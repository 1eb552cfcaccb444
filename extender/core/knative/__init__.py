"""How Knative placed up to 1.16, for profiles whose rules ask for it (``KNATIVE_1_16_RULES``, ``MAXFILLUP_PROFILE``)."""
