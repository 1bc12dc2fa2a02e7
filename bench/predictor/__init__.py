"""How well output lengths are predicted before a request runs, and what that costs."""
