"""Acts by programs of this host: `systemctl restart vllm-a`, or whatever the operator has."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Final

from sidecar.actuators import threads
from sidecar.actuators.actuator import Action, ActuationError, Order
from tokenweir.config.actuators import CommandConfig

ARGUMENTS: Final = "{arguments}"
OUTPUT_SHOWN: Final = 400
"""Characters of a failed program's last output that the audit log holds."""
KILL_AFTER_S: Final = 5.0


class CommandDriver:
    """Programs of `tokenweir.yaml`. They inherit the sidecar's environment without its own variables
    (secrets may be among them), with TOKENWEIR_BACKEND, TOKENWEIR_ACTION and TOKENWEIR_REASON added."""

    kind = "command"

    def __init__(self, config: CommandConfig, folder: Path, timeout_s: float) -> None:
        self._config = config
        self._folder = folder / config.folder if config.folder else folder
        self._timeout_s = timeout_s

    async def act(self, order: Order) -> str:
        """As in `Driver`. A program that outlasts the time limit is ended, with what it has started."""
        commands = self._commands(order)
        return await threads.run(lambda: self._run_all(commands, order))

    def describe(self, order: Order) -> str:
        """As in `Driver`."""
        try:
            return f"run {', then '.join(shlex.join(words) for words in self._commands(order))}"
        except ActuationError as error:
            return f"do nothing: {error}"

    def _commands(self, order: Order) -> list[list[str]]:
        config = self._config
        if order.action is Action.RESTART and config.restart is None:
            return [words for words in (config.stop, config.start) if words is not None]
        words: list[str] | None = getattr(config, order.action.value)
        if words is None:
            raise ActuationError(f"no program is configured to {order.action} it (`command: {order.action}`)")
        filled: list[str] = []
        for word in words:
            filled += order.arguments if word == ARGUMENTS else [word]
        return [filled]

    def _run_all(self, commands: list[list[str]], order: Order) -> str:
        for words in commands:
            self._run(words, order)
        return f"ran {', then '.join(shlex.join(words) for words in commands)}"

    def _run(self, words: list[str], order: Order) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENWEIR_")}
        environment |= {
            "TOKENWEIR_BACKEND": order.backend,
            "TOKENWEIR_ACTION": order.action.value,
            "TOKENWEIR_REASON": order.reason.replace("\0", " "),
        }
        # Into a file: a program that leaves a server behind in the background keeps a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    words,
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ActuationError(f"{words[0]} cannot be run: {reason}") from None
            try:
                status = process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                _end(process)
                text = f"{shlex.join(words)} did not end within {self._timeout_s:.0f} s and was ended"
                raise ActuationError(f"{text}: {_tail(output)}") from None
            if status != 0:
                how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
                raise ActuationError(f"{shlex.join(words)} {how}: {_tail(output)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER_S)
            return


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 4 * OUTPUT_SHOWN))
    text = output.read().decode("utf-8", "replace").strip()
    return text[-OUTPUT_SHOWN:] if text else "it printed nothing"
