"""`up`: starts what the configuration asks for and waits until it is ready."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import httpx
from rich.console import Console

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.cli.progress import Progress
from tokenweir.stack import gateway_server, launch, sidecar_server
from tokenweir.stack.probes import http_ready
from tokenweir.stack.settings import Settings, read
from tokenweir.stack.stack import parts

BACKENDS_WITHIN_S = 30.0


def up(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Start Redis, the sidecar, the gateway, the emulated servers; again is safe and applies changes."""
    console = Console(highlight=False)
    with told():
        settings = read(config)
        state = settings.state
        state.create()
        if state.moved:
            console.print(f"run-time files are in {state.root}: {state.moved}", style="yellow")
        with launch.exclusively(state.run):
            wanted = parts(settings)
            with Progress(console, {part.name: part.title for part in wanted}) as progress:
                launch.bring_up(wanted, state.run, progress.report)
        missing = _await_backend(console, settings)
        _summary(console, settings, missing)


def _await_backend(console: Console, settings: Settings) -> str | None:
    """None once the gateway has a backend to send requests to; else why it has none."""
    url = f"{gateway_server.base_url(settings)}/readyz"
    until = time.monotonic() + BACKENDS_WITHIN_S
    with console.status("waiting for the first usable backend"):
        while (missing := http_ready(url, verify=False)) and time.monotonic() < until:
            time.sleep(0.2)
    return missing


def first_model(settings: Settings) -> str | None:
    """A model that the gateway lists, for the example."""
    try:
        answer = httpx.get(
            f"{gateway_server.base_url(settings)}/v1/models",
            timeout=2,
            verify=False,
            trust_env=False,
        )
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, LookupError, ValueError, TypeError):
        return None


def example(settings: Settings, model: str) -> str:
    """A curl line that streams a short answer."""
    body = {
        "model": model,
        "stream": True,
        "max_tokens": 32,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    words = ["curl", "-N"]
    if settings.config.listen.tls:
        words.append("-k")
    if settings.config.keys:
        words += ["-H", "Authorization: Bearer YOUR_KEY"]
    words += [
        f"{gateway_server.base_url(settings)}/v1/chat/completions",
        "-H",
        "Content-Type: application/json",
    ]
    words += ["-d", json.dumps(body)]
    return shlex.join(words)


def _summary(console: Console, settings: Settings, missing: str | None) -> None:
    console.print(f"\n[bold]base URL[/]   {gateway_server.base_url(settings)}/v1")
    console.print(f"[bold]admin URL[/]  {sidecar_server.admin_url(settings)}")
    console.print(
        f"[bold]logs[/]       {_shown(settings.state.log)}, {_shown(settings.state.gateway / 'logs')}"
    )
    if missing:
        console.print(
            f"\n[yellow]No backend can take requests yet[/] ({missing}).\n"
            "`make status` shows why; requests flow as soon as one answers."
        )
        return
    model = first_model(settings)
    if model is not None:
        console.print("\nTry it:")
        console.print(example(settings, model), soft_wrap=True, markup=False)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
