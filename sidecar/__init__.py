"""The control plane: watches the engines, decides, and publishes its decisions through Redis."""
