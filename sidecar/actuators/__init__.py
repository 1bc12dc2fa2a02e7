"""What the sidecar can do to an engine: restart, start, stop it, or start it with other arguments."""

from sidecar.actuators.actuator import Action, Actuator, Outcome

__all__ = ["Action", "Actuator", "Outcome"]
