"""The OpenAI API in front of the emulated engine."""
