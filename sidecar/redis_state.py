"""Whether Redis answers, as the exchanges with it find."""

from __future__ import annotations

import structlog

log = structlog.get_logger(__name__)

NOT_ASKED = "not asked yet"


class RedisState:
    """The state, told once at each change."""

    def __init__(self) -> None:
        self.error: str | None = NOT_ASKED
        """Why Redis does not answer; None while it does."""
        self.errors = 0
        """Failed exchanges since the start."""

    def failed(self, error: Exception) -> None:
        """An exchange failed."""
        self.errors += 1
        text = str(error) or type(error).__name__
        if self.error is None or self.error == NOT_ASKED:
            log.warning("redis_away", reason=text)
        self.error = text

    def answered(self) -> None:
        """An exchange went well."""
        if self.error not in {None, NOT_ASKED}:
            log.info("redis_back")
        self.error = None
