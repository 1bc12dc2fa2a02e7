"""`up`: starts what the configuration asks for and waits until it is ready."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape

from tokenweir.cli.admin import ask
from tokenweir.cli.check import notes, shared_ports, unusable_secrets
from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.cli.progress import Progress
from tokenweir.config import ConfigError
from tokenweir.stack import gateway_server, launch, sidecar_server
from tokenweir.stack.probes import http_ready
from tokenweir.stack.settings import Settings, keep, read
from tokenweir.stack.stack import parts

BACKENDS_WITHIN_S = 30.0
OTHERS_WITHIN_S = 5.0
SETTINGS_WITHIN_S = 15.0
MOST_TOLD = 4
POLL_S = 0.2
AGAIN_S = 5.0
"""Where there is no terminal, what is waited for is named again this often."""
INTERRUPTED = "interrupted: what has been started runs on; `make up` goes on from here, `make down` ends it"
SETTINGS_VERSION = 'tokenweir_document_version{document="settings"}'


def up(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Start Redis, the sidecar, the gateway, the emulated servers; again is safe and applies changes."""
    console = Console(highlight=False)
    with told(INTERRUPTED):
        settings = read(config)
        if problems := shared_ports(settings) + unusable_secrets(settings.config, settings.path.parent):
            raise ConfigError(str(config), problems)
        state = settings.state
        state.create()
        if state.moved:
            console.print(f"run-time files are in {state.root}: {state.moved}", style="yellow")
        with launch.exclusively(state.run):
            launch.claim(state.run, config.resolve())
            wanted = parts(settings)
            with Progress(console, {part.name: part.title for part in wanted}) as progress:
                launch.bring_up(wanted, state.run, progress.report, _shown(settings.path))
            keep(settings)
        behind = wait_until(
            console,
            "the gateway to take over the settings",
            lambda: settings_lag(settings),
            SETTINGS_WITHIN_S,
        )
        if behind:
            console.print(f"[yellow]Keys, aliases and limits may not hold yet[/]: {behind}", soft_wrap=True)
        url = f"{gateway_server.base_url(settings)}/readyz"
        missing = wait_until(
            console,
            "the first usable backend",
            lambda: http_ready(url, verify=False) and unusable(settings),
            BACKENDS_WITHIN_S,
        )
        others = (
            None
            if missing
            else wait_until(console, "the other backends", lambda: waited_for(settings), OTHERS_WITHIN_S)
        )
        _summary(console, settings, missing)
        if others:
            console.print(f"\n[yellow]Not ready yet[/]: {escape(others)}", soft_wrap=True)
        for note in notes(settings.config):
            console.print(f"\n[yellow]note[/]: {escape(note)}", soft_wrap=True)
        if reminder := same_config(settings.path):
            console.print(f"\n{reminder}", markup=False, soft_wrap=True)


def wait_until(console: Console, what: str, missing: Callable[[], str | None], within_s: float) -> str | None:
    """None once `missing()` is None; after `within_s` what it said last."""
    begun = said = time.monotonic()
    with console.status(f"waiting for {what}"):
        while (why := missing()) and (now := time.monotonic()) < begun + within_s:
            if not console.is_terminal and now - said > AGAIN_S:
                said = now
                text = f"waiting for {what}: {now - begun:.0f} of {within_s:.0f} s ({why})"
                console.print(text, markup=False, soft_wrap=True)
            time.sleep(POLL_S)
    return why


def settings_lag(settings: Settings) -> str | None:
    """None once the gateway goes by the settings that the sidecar has published; else what it waits for."""
    try:
        published = int(ask(settings, "/api/settings")[0]["version"])
        page = httpx.get(gateway_server.metrics_url(settings), timeout=2, trust_env=False)
        applied = _settings_version(page.raise_for_status().text)
    except (httpx.HTTPError, LookupError, ValueError, TypeError) as error:
        return f"no answer ({type(error).__name__})"
    if not published and applied and _stands_by(settings):
        return None
    if not published:
        return "the sidecar has published none yet"
    return None if applied >= published else "the gateway goes by those before"


def _stands_by(settings: Settings) -> bool:
    """Whether another sidecar leads, so that this one publishes nothing."""
    try:
        fleet = ask(settings, "/api/fleet")[0]
        return not fleet["leading"] and bool(fleet["leader"])
    except (httpx.HTTPError, LookupError, ValueError, TypeError):
        return False


def unusable(settings: Settings) -> str:
    """Why the gateway has no backend to send requests to, of each backend."""
    try:
        rows = ask(settings, "/api/fleet")[0]["backends"]
    except (httpx.HTTPError, LookupError, ValueError, TypeError) as error:
        return f"the sidecar does not say why ({type(error).__name__})"
    if not rows:
        return "no backends are configured"
    return _not_ready(rows) or "the gateway has not heard of them yet"


def waited_for(settings: Settings) -> str | None:
    """Which backends are not ready and why; of those that are drained or held out somebody knows."""
    try:
        rows = ask(settings, "/api/fleet")[0]["backends"]
        return _not_ready([row for row in rows if row["shown"] in {"down", "starting"}]) or None
    except (httpx.HTTPError, LookupError, ValueError, TypeError):
        return None


def _not_ready(rows: list[dict[str, Any]]) -> str:
    told = [f"{row['id']} is {row['state']}: {row['reason']}" for row in rows if row["state"] != "ready"]
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return "; ".join(told[:MOST_TOLD]) + more


def _settings_version(page: str) -> int:
    for line in page.splitlines():
        if line.startswith(SETTINGS_VERSION):
            return int(float(line.rsplit(" ", 1)[1]))
    return 0


def first_model(settings: Settings) -> str | None:
    """A model of the fleet, for the example. (The gateway tells its models only to who has a key.)"""
    try:
        rows = ask(settings, "/api/fleet")[0]["backends"]
        return min(str(model) for row in rows if row["state"] == "ready" for model in row["models"])
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
            f"\n[yellow]No backend can take requests yet[/] ({escape(missing)}).\n"
            "`make status` shows why; requests flow as soon as one answers.",
            soft_wrap=True,
        )
        return
    model = first_model(settings)
    if model is not None:
        console.print("\nTry it:")
        console.print(example(settings, model), soft_wrap=True, markup=False)


def same_config(path: Path) -> str | None:
    """What to remember of another configuration than the default one; None of that."""
    if path == DEFAULT_CONFIG.resolve():
        return None
    given = f"CONFIG={shlex.quote(_shown(path))}"
    return f"Of this configuration: make status {given}, make down {given}"


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
