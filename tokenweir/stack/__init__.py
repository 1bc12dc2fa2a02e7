"""The parts that `up` runs on one machine: Redis, the sidecar, the gateway, the emulated servers."""
