"""A fleet of a thousand backends and a hundred thousand sessions: what gateway and sidecar take for it."""
