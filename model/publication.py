"""Where models live in Redis: each under its version, and one key that names the one in service.

Everything is changed in one script, so a gateway never sees a name without its model. The models before
the one in service are kept for a while, so that going back is a matter of one key."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import redis

from tokenweir.contract import names
from tokenweir.contract.records import PredictorCurrent, PredictorModel

SWITCH: Final = """
for k = 2, #ARGV do redis.call('SET', KEYS[k], ARGV[k]) end
redis.call('SET', KEYS[1], ARGV[1])
for k = 4, #KEYS do redis.call('DEL', KEYS[k]) end
"""
KEPT: Final = 5
"""Models that stay beside the one in service."""


class RollbackError(LookupError):
    """There is nothing to go back to."""


@dataclass(frozen=True, slots=True)
class InService:
    """The model in service: its envelope, its decoded payload, and what it was trained from."""

    version: str
    envelope: dict[str, Any]
    payload: dict[str, Any]
    seen: npt.NDArray[np.uint32]
    """Digests of the rows that it was trained from."""


class Publication:
    """The models in one Redis. All methods raise RedisError when it is away."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def current(self) -> PredictorCurrent | None:
        """What is in service, or None."""
        text = self._client.get(names.PREDICTOR_CURRENT)
        try:
            return PredictorCurrent.read(text) if isinstance(text, bytes | str) else None
        except ValueError:
            return None

    def in_service(self) -> InService | None:
        """The model in service, or None where there is none that can be read."""
        current = self.current()
        text = self._client.get(names.PREDICTOR_MODEL + current.version) if current else None
        if current is None or not isinstance(text, bytes | str):
            return None
        try:
            model = PredictorModel.read(text)
            payload = json.loads(model.payload)
        except ValueError:
            return None
        seen = self._client.get(names.PREDICTOR_SEEN + current.version)
        digests = seen if isinstance(seen, bytes) and len(seen) % 4 == 0 else b""
        return InService(
            current.version, model.model_dump(by_alias=True), payload, np.frombuffer(digests, "<u4")
        )

    def publish(self, version: str, document: str, seen: bytes = b"") -> None:
        """Put a model into service; `seen`: the digests of what it was trained from (uint32)."""
        before = self.current()
        previous = [before.version, *before.previous][: KEPT + 1] if before else []
        previous = [other for other in previous if other != version]
        self._switch(version, previous[:KEPT], [document, seen], previous[KEPT:])

    def roll_back(self) -> str:
        """Put the model before into service; return its version. Raises RollbackError."""
        current = self.current()
        if current is None or not current.previous:
            raise RollbackError(
                "no earlier model is kept; for running figures set `predictor: {enabled: false}`"
            )
        version, *rest = current.previous
        if not self._client.exists(names.PREDICTOR_MODEL + version):
            raise RollbackError(f"the model {version} is gone from Redis")
        self._switch(version, rest, [], [])
        return version

    def _switch(
        self, version: str, previous: list[str], written: list[str | bytes], dropped: list[str]
    ) -> None:
        current = PredictorCurrent(version=version, time_ms=int(time.time() * 1000), previous=previous)
        keys = [names.PREDICTOR_CURRENT]
        for other in (version, *dropped):
            keys += [names.PREDICTOR_MODEL + other, names.PREDICTOR_SEEN + other]
        self._client.eval(SWITCH, len(keys), *keys, current.dump(), *written)
