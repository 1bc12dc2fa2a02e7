"""Moving the KV cache of a session that moves: a port with an adapter a file, and the gateway's way to it."""
