"""What is learned from the completions that the gateways report."""
