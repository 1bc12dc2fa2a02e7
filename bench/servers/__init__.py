"""Real servers, started and stopped for a bench: nginx, Redis, the gateway, the sidecar, emulated engines."""
