"""The published predictors on this host's disk, so that a Redis that comes back empty is given them again.

A trained model is the one thing in Redis that nobody makes anew within seconds: the file that it was trained
from may be gone. Every sidecar copies what is in service and what can be gone back to; whichever leads puts
it back where Redis has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import redis.asyncio as aioredis
import structlog

from sidecar.redis_access import text_of
from tokenweir.atomic_file import write_atomically
from tokenweir.contract import names
from tokenweir.contract.records import PredictorCurrent, PredictorModel

log = structlog.get_logger(__name__)

FOLDER: Final = "model/published"
"""Of the state directory."""
CURRENT: Final = "current.json"
MODEL, SEEN = ".model.json", ".seen"
MODE: Final = 0o600

PUT_BACK: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for k = 1, #KEYS do redis.call('SET', KEYS[k], ARGV[k]) end
return 1
"""
"""Never over a model that was published meanwhile."""


class KeptModels:
    """The copies of one sidecar. A disk that takes or gives nothing is told once in the log, and tried again;
    nothing else depends on it."""

    def __init__(self, client: aioredis.Redis, state_dir: Path) -> None:
        self._client = client
        self._folder = state_dir / FOLDER
        self._copied: bytes | None = None
        """What was in service when all was copied last."""
        self._told = ""

    async def step(self, leading: bool) -> str:
        """Copy what is new, or put back what is missing; returns the version in service then, empty: none.
        Raises RedisError."""
        text = await text_of(self._client, names.PREDICTOR_CURRENT)
        if text is None and leading:
            text = await self._put_back()
        if text is None:
            return ""
        try:
            current = PredictorCurrent.read(text)
        except ValueError:
            return ""
        if text != self._copied:
            await self._copy(text, current)
        return current.version

    async def _copy(self, text: bytes, current: PredictorCurrent) -> None:
        versions = [current.version, *current.previous]
        try:
            for version in versions:
                await self._copy_model(version)
            write_atomically(self._folder / CURRENT, text, MODE)
            wanted = {CURRENT} | {version + kind for version in versions for kind in (MODEL, SEEN)}
            for path in self._folder.iterdir():
                if path.name not in wanted:
                    path.unlink(missing_ok=True)
        except OSError as error:
            self._tell("models_not_kept", error)
        else:
            self._copied, self._told = text, ""

    async def _copy_model(self, version: str) -> None:
        if (self._folder / (version + MODEL)).is_file():
            return  # what a version is never changes
        model = await text_of(self._client, names.PREDICTOR_MODEL + version)
        if model is not None:
            seen = await text_of(self._client, names.PREDICTOR_SEEN + version)
            write_atomically(self._folder / (version + SEEN), seen or b"", MODE)
            write_atomically(self._folder / (version + MODEL), model, MODE)

    async def _put_back(self) -> bytes | None:
        """Give Redis what the copies hold; what is in service then, or None."""
        try:
            text = (self._folder / CURRENT).read_bytes()
            current = PredictorCurrent.read(text)
            keys, values = [names.PREDICTOR_CURRENT], [text]
            for version in (current.version, *current.previous):
                path = self._folder / (version + MODEL)
                if not path.is_file() and version != current.version:
                    continue
                model = path.read_bytes()
                PredictorModel.read(model)
                keys += [names.PREDICTOR_MODEL + version, names.PREDICTOR_SEEN + version]
                values += [model, (self._folder / (version + SEEN)).read_bytes()]
        except FileNotFoundError:
            return None  # nothing was published yet
        except (OSError, ValueError) as error:
            self._tell("models_not_put_back", error)
            return None
        done: Any = await self._client.eval(PUT_BACK, len(keys), *keys, *values)
        if not done:
            return await text_of(self._client, names.PREDICTOR_CURRENT)
        self._copied = text
        log.info("predictor_put_back", version=current.version)
        return text

    def _tell(self, event: str, error: Exception) -> None:
        told = f"{event}: {error}"
        if told != self._told:
            log.warning(event, folder=str(self._folder), reason=str(error))
        self._told = told
