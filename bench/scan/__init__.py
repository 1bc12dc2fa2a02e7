"""What it costs to read request bodies and streams, in LuaJIT alone."""
