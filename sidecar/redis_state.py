"""Whether Redis answers, as the exchanges with it find."""

from __future__ import annotations

import structlog

log = structlog.get_logger(__name__)

NOT_ASKED = "not asked yet"
MOST_TOLD = 16
"""Reasons that are told in one outage."""


class RedisState:
    """The state. Each part of the sidecar that speaks with Redis may fail by itself, as some commands do
    where Redis is full: an outage lasts while one of them fails, and each of its reasons is told once."""

    def __init__(self) -> None:
        self.errors = 0
        """Failed exchanges since the start."""
        self._asked = False
        self._failing: dict[str, str] = {}
        """Part -> why its last exchange failed."""
        self._told: set[str] = set()

    @property
    def error(self) -> str | None:
        """Why Redis does not answer; None while it does."""
        if self._failing:
            return next(iter(self._failing.values()))
        return None if self._asked else NOT_ASKED

    def failed(self, part: str, error: Exception) -> None:
        """An exchange of this part failed."""
        self.errors += 1
        self._failing[part] = text = str(error) or type(error).__name__
        if text not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(text)
            log.warning("redis_away", reason=text)

    def answered(self, part: str) -> None:
        """An exchange of this part went well."""
        self._asked = True
        self.rests(part)

    def rests(self, part: str) -> None:
        """This part has nothing to ask for the time being."""
        self._failing.pop(part, None)
        if self._told and not self._failing:
            self._told.clear()
            log.info("redis_back")
