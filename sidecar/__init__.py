"""The control plane: telemetry, fleet state, decisions, the admin API."""
