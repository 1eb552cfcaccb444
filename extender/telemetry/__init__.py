"""What both programs tell about themselves: metrics, spans and log lines. Knows ``model`` only."""
