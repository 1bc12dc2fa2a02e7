"""What moving a cache between two processes takes, against computing the prompt anew."""
