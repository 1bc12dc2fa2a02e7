"""The engine's waiting queue: first come, first served; a preempted request goes to its head."""

from collections import deque

from emulator.engine.request import Request, State


class WaitingQueue:
    """Requests that wait. One that is dropped is skipped when its turn comes, so dropping costs nothing."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, request: Request) -> None:
        """Add a new request at the end."""
        request.state = State.WAITING
        self._requests.append(request)
        self._count += 1

    def push_front(self, request: Request) -> None:
        """Put a preempted request at the head."""
        request.state = State.WAITING
        self._requests.appendleft(request)
        self._count += 1

    def head(self) -> Request:
        """The request whose turn it is. Raises IndexError when none waits."""
        requests = self._requests
        while requests[0].state is not State.WAITING:
            requests.popleft()
        return requests[0]

    def pop(self) -> Request:
        """Take the head."""
        request = self.head()
        self._requests.popleft()
        self._count -= 1
        return request

    def drop(self, request: Request) -> None:
        """Forget a waiting request."""
        request.state = State.DONE
        self._count -= 1

    def all(self) -> list[Request]:
        """All waiting requests, in order."""
        return [request for request in self._requests if request.state is State.WAITING]
