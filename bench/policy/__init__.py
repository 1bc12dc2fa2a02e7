"""The simulator: the shipped policies beside the rules of other routers, on recorded traffic, over the engine
model."""
