"""An emulated GPU server: the engine model and a server that speaks the OpenAI API."""
