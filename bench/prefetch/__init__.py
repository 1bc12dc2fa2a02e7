"""Reading a model's weights ahead, against reading them as an engine does."""
