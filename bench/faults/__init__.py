"""Ten thousand requests while every part is killed, frozen and restarted (`make bench-faults`)."""
