"""What it costs to watch many engines."""
