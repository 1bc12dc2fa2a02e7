"""The elastic buffer under overload: order, fairness, waits, estimates, memory, faults."""
