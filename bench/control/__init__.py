"""The control loop under scripted scenarios, on an emulated fleet behind a real nginx, sidecar and Redis."""
