"""The policies' comparison once more, for real: processes, sockets and streams."""
