"""The running figures per model: outputs, tokens per byte of prompt, tokens per streamed event."""

from __future__ import annotations

from typing import Any, Final

from sidecar.learning.lengths import Lengths
from sidecar.learning.ratio import Ratio
from tokenweir.contract import names
from tokenweir.contract.records import Completion, ModelStats, Outcome

SHORTEST_PROMPT: Final = 64
"""Bytes of prompt from which its tokens per byte are believed: below, the chat template outweighs the
text."""


class ModelFigures:
    """What is known of one model's completions."""

    def __init__(self) -> None:
        self.lengths = Lengths()
        self.tokens_per_byte = Ratio()
        self.tokens_per_event = Ratio()

    def add(self, record: Completion) -> None:
        """One believed record."""
        if record.prompt and record.prompt_bytes >= SHORTEST_PROMPT:
            self.tokens_per_byte.add(record.prompt, record.prompt_bytes)
        if (
            record.outcome is not Outcome.OK
            or record.output is None
            or record.kind in {"embeddings", "other"}
        ):
            return
        if record.output_source == "usage" and record.events and record.output:
            self.tokens_per_event.add(record.output, record.events)
        if record.output_source == "none":
            return
        # A request with n choices is n outputs; only their sum is told.
        for _ in range(min(record.n, 16)):
            self.lengths.add(record.output / record.n, cut=record.finish in {"length", "max_tokens"})

    def published(self) -> ModelStats | None:
        """The figures for the gateways, or None before the first output."""
        figures = self.lengths.figures()
        if figures is None:
            return None
        return ModelStats(
            count=self.lengths.count,
            mean=figures.mean,
            median=figures.median,
            spread=min(figures.spread, 10),
            tokens_per_byte=self.tokens_per_byte.value(0.25, 0.001, 10),
            tokens_per_event=self.tokens_per_event.value(1, 0.01, 1000),
        )

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return {
            "lengths": self.lengths.dump(),
            "tokens_per_byte": self.tokens_per_byte.dump(),
            "tokens_per_event": self.tokens_per_event.dump(),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> ModelFigures:
        """The object behind a dump. Raises ValueError, KeyError or TypeError on a damaged one."""
        figures = cls()
        figures.lengths = Lengths.restore(state["lengths"])
        figures.tokens_per_byte = Ratio.restore(state["tokens_per_byte"])
        figures.tokens_per_event = Ratio.restore(state["tokens_per_event"])
        return figures


class Figures:
    """The figures of all models, at most as many as the contract has room for."""

    def __init__(self) -> None:
        self.models: dict[str, ModelFigures] = {}

    def add(self, record: Completion) -> None:
        """One believed record. Where there is no room the model with the fewest completions gives way."""
        figures = self.models.get(record.model)
        if figures is None:
            if len(self.models) >= names.MAX_MODELS:
                del self.models[min(self.models, key=lambda name: self.models[name].lengths.count)]
            figures = self.models[record.model] = ModelFigures()
        figures.add(record)

    def published(self) -> dict[str, ModelStats]:
        """The figures for the gateways, by model."""
        found = ((name, figures.published()) for name, figures in self.models.items())
        return {name: stats for name, stats in found if stats is not None}

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return {name: figures.dump() for name, figures in self.models.items()}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Figures:
        """The object behind a dump. Raises ValueError, KeyError or TypeError on a damaged one."""
        figures = cls()
        for name, model in list(state.items())[: names.MAX_MODELS]:
            figures.models[str(name)] = ModelFigures.restore(model)
        return figures
