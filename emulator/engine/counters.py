"""What an engine has done since it started: the source of its metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Running totals. Times in ms, everything else a count."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of requests whose prompt was computed for the first time."""
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    """Tokens that were looked up in the prefix cache."""
    prefix_hits: int = 0
    steps: int = 0
    tokens: int = 0
    """Tokens that the steps held: prompt chunks and one of each decoding sequence."""
    decoded: int = 0
    """Tokens that decoding produced, that is all but the first of each request."""
    decoding: float = 0.0
    """Time between tokens, summed over the decoding sequences."""
    busy: float = 0.0
    """Time spent in steps."""
    tensor: float = 0.0
    """Time for which the tensor cores would have run at their reached rate."""
