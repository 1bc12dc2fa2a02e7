"""The engine model against a recorded run of a real engine."""
