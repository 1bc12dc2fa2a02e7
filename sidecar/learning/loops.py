"""The two loops that learn: one reads the completions while this sidecar leads, the other records them, keeps
the small model running and has the predictor trained when that is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from sidecar.clock import wall_ms
from sidecar.completions import Completions
from sidecar.leader import Leader, NotLeaderError
from sidecar.learning.deviation import FLEET, MINUTE_MS
from sidecar.learning.kept_models import KeptModels
from sidecar.learning.recording import count
from sidecar.learning.retraining import Retraining
from sidecar.learning.small_model import SmallModel
from sidecar.publish import Publisher
from sidecar.redis_access import RedisError
from sidecar.redis_state import RedisState
from tokenweir.config.predictor import PredictorConfig

log = structlog.get_logger(__name__)

COMPLETIONS_MS: Final = 200
TRAINING_MS: Final = 5000
"""How often it is looked at whether a training is due."""
PART: Final = "learning"
"""Of the sidecar, in what is known of Redis."""


class LearningLoops:
    """The loops of one sidecar. `retraining` and `small_model` are the processes that it keeps."""

    def __init__(
        self,
        redis: RedisState,
        leader: Leader,
        *,
        completions: Completions,
        publisher: Publisher,
        retraining: Retraining,
        small_model: SmallModel,
        models: KeptModels,
        settings: Callable[[], PredictorConfig],
        lost_lead: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._leader = leader
        self._completions = completions
        self._publisher = publisher
        self._retraining = retraining
        self._small_model = small_model
        self._models = models
        self._settings = settings
        self._lost_lead = lost_lead

    async def read(self) -> None:
        """Read completions for ever, while leading."""
        while True:
            more = False
            try:
                if self._leader.leading and self._publisher.published:
                    missing, self._publisher.stats_missing = self._publisher.stats_missing, False
                    more = await self._completions.step(missing)
                    self._redis.answered(PART)
                else:
                    self._redis.rests(PART)
            except NotLeaderError:
                self._lost_lead()
            except (RedisError, OSError) as error:
                self._redis.failed(PART, error)
            except Exception:
                log.exception("completions_failed")
            await asyncio.sleep(0 if more else COMPLETIONS_MS / 1000)

    async def train(self) -> None:
        """Record, and train when it is due, for ever."""
        while True:
            await asyncio.sleep(TRAINING_MS / 1000)
            try:
                await self._step()
            except (RedisError, OSError) as error:
                self._redis.failed(PART, error)
            except Exception:
                log.exception("training_failed")

    async def _step(self) -> None:
        settings, recording = self._settings(), self._completions.recording
        await recording.step(settings.keep)
        await self._small_model.step(settings.enabled and settings.small_model)
        now = wall_ms()
        fleet = self._completions.deviation.figures(now).get(FLEET)
        if fleet is not None:
            self._retraining.observe(now // MINUTE_MS - 1, fleet.deviation)
        version = await self._models.step(self._leader.leading)
        if self._leader.leading:
            self._publisher.predictor = version
        if self._leader.leading and settings.enabled:
            recorded = await asyncio.to_thread(count, recording.folder)
            self._retraining.step(settings.retrain, version != "", recorded)
