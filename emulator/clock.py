"""The engine's clock: the machine's, faster or slower, and it can be stopped."""

from collections.abc import Callable


class EngineClock:
    """Virtual milliseconds that pass `speed` times as fast as `wall` seconds, except while stopped."""

    def __init__(self, wall: Callable[[], float], speed: float = 1.0) -> None:
        self._wall, self.speed = wall, speed
        self._passed, self._since = 0.0, wall()
        self.stopped = False

    def now(self) -> float:
        """Virtual milliseconds since the clock was made."""
        return (
            self._passed if self.stopped else self._passed + (self._wall() - self._since) * 1e3 * self.speed
        )

    def wall_seconds(self, virtual_ms: float) -> float:
        """How long a span of virtual time takes on the wall."""
        return virtual_ms / 1e3 / self.speed

    def stop(self) -> None:
        """Hold the time."""
        self._passed, self.stopped = self.now(), True

    def go(self) -> None:
        """Let the time pass again."""
        if self.stopped:
            self._since, self.stopped = self._wall(), False
