"""Sessions: how much of the prompts is found in caches, and what that costs in waiting and balance."""
