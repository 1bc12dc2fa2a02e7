"""What an engine does when its KV memory is full in the middle of a step."""

from enum import StrEnum


class Exhaustion(StrEnum):
    """The three ways in which engines of the field run out of memory."""

    PREEMPT = "preempt"
    """vLLM, SGLang: the newest running request loses its memory, waits at the head of the queue and is
    computed again, prompt and output. A step that did so admits nobody. Requests are admitted when their
    whole prompt fits above a watermark."""

    ABORT = "abort"
    """llama.cpp with a unified KV: every request in flight gets an error; the waiting ones go on. A request
    is admitted as soon as a slot is free, whatever it needs."""

    CRASH = "crash"
    """Engines whose allocator fails: the process dies with all that it had, running and waiting, until it is
    restarted. A request is admitted when its prompt fits."""

    @property
    def watermark(self) -> float:
        """Share of the blocks that admission leaves free while others run (vLLM's 1 %)."""
        return 0.01 if self is Exhaustion.PREEMPT else 0.0

    @property
    def checks_prompt(self) -> bool:
        """Whether admission looks at memory at all."""
        return self is not Exhaustion.ABORT
