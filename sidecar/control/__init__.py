"""What the sidecar decides: one file per decision, each with its reasons in words."""
