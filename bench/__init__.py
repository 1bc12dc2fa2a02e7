"""One folder a bench; each writes bench/results/NAME.json."""
