"""`status`: the parts that run, and the fleet as the sidecar sees it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenweir.cli.admin import ask
from tokenweir.cli.check import counted
from tokenweir.cli.notices import alert_lines, gateway_state, model_lines
from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.config import ConfigError
from tokenweir.stack import gateway_server, sidecar_server
from tokenweir.stack.probes import http_answer
from tokenweir.stack.process import read_pid_files
from tokenweir.stack.settings import Settings, last_applied, read
from tokenweir.stack.state_dir import StateDir

STATES = {"ready": "green", "starting": "yellow", "draining": "yellow", "down": "red", "standby": "cyan"}


def status(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Show what runs and the fleet. Ends with status 1 when the gateway or the sidecar does not answer,
    something that `up` started is gone, or the configuration has an error."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    with told():
        try:
            settings, problem = _applied(console, config, read(config)), None
        except ConfigError as error:
            settings, problem = _in_service(console, config, error), error
        console.print(_parts(settings.state), soft_wrap=True)
        gone = _gone(settings.state)
        base_url = gateway_server.base_url(settings)
        ready, text = http_answer(f"{base_url}/readyz", verify=False)
        console.print(f"gateway {base_url}/v1: {gateway_state(ready, escape(text))}", soft_wrap=True)
        try:
            overview, backends, learning = ask(settings, "/api/fleet", "/api/backends", "/api/predictor")
        except (httpx.HTTPError, ValueError) as error:
            where = sidecar_server.admin_url(settings)
            console.print(f"sidecar {where}: [red]no answer[/] ({error})", soft_wrap=True)
            console.print("A gateway that runs goes on by its last snapshot.")
            raise typer.Exit(1) from None
        console.print(_headline(settings, overview), soft_wrap=True)
        console.print(predictor_line(learning), soft_wrap=True)
        if overview["changes"]:
            console.print(f"changed by the admin API: {', '.join(overview['changes'])}", soft_wrap=True)
        if "models" not in overview:
            console.print(
                "[yellow]this older sidecar tells no levels or alerts[/]; `make up` renews it",
                soft_wrap=True,
            )
        for line in alert_lines(overview.get("alerts", []), time.time() * 1000):
            console.print(line, style="red", markup=False, soft_wrap=True)
        for line in model_lines(overview.get("models", {})):
            console.print(line, style="yellow", markup=False, soft_wrap=True)
        console.print(fleet_table(backends))
        for backend in backends:
            console.print(reasons(backend), style="dim", markup=False, soft_wrap=True)
    if not ready or gone or problem is not None:
        raise typer.Exit(1)


def _in_service(console: Console, config: Path, error: ConfigError) -> Settings:
    """What runs goes by the configuration of the last `up`, whatever the file says by now."""
    console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
    settings = last_applied(config)
    if settings is None:
        console.print(f"nothing was started by `up` for {config}", markup=False, soft_wrap=True)
        raise typer.Exit(1)
    console.print("[yellow]What follows is of the configuration that `up` applied last.[/]\n", soft_wrap=True)
    return settings


def _applied(console: Console, config: Path, written: Settings) -> Settings:
    """What runs goes by the configuration of the last `up`, until another applies what was written since."""
    settings = last_applied(config)
    if settings is None or settings.config == written.config:
        return written
    changed = [
        f"`{key}`"
        for key in type(written.config).model_fields
        if getattr(written.config, key) != getattr(settings.config, key)
    ]
    console.print(
        f"{config} has changed since the last `up` ({', '.join(changed)}): `make up` applies it. "
        "What follows is of what `up` applied.\n",
        style="yellow",
        markup=False,
        soft_wrap=True,
    )
    return settings


def _parts(state: StateDir) -> str:
    pid_files = read_pid_files(state.run)
    if not pid_files:
        return "nothing was started by `up` for this configuration; what answers below was started elsewhere"
    found = "processes: " + ", ".join(
        f"{name} [green]{pid_file.identity.pid}[/]" if pid_file.running else f"{name} [red]gone[/]"
        for name, pid_file in pid_files.items()
    )
    return f"{found} (`make up` starts what is gone)" if _gone(state) else found


def _gone(state: StateDir) -> bool:
    """Whether something that `up` started has ended by itself."""
    return not all(pid_file.running for pid_file in read_pid_files(state.run).values())


def _headline(settings: Settings, overview: dict[str, Any]) -> str:
    shadow = f", shadow {overview['shadow']}" if overview["shadow"] else ""
    redis = f", [red]Redis: {overview['redis']}[/]" if overview["redis"] else ""
    age = overview["snapshot_age_ms"]
    if not overview["leading"] and overview["leader"]:
        told_at = f"stands by, {overview['leader']} leads"
    else:
        told_at = "nothing published yet" if age is None else f"last snapshot {age:.0f} ms ago"
    at_rest = sum(row.get("shown") == "standby" for row in overview["backends"])
    counts = (
        f"{counted(overview['gateways'], 'gateway')}, "
        f"{overview['ready']} of {counted(len(overview['backends']), 'backend')} ready"
        + (f", {at_rest} stopped on standby" if at_rest else "")
    )
    return (
        f"sidecar {sidecar_server.admin_url(settings)}: policy {overview['policy']}{shadow}, "
        f"{told_at}, {counts}{redis}"
    )


def predictor_line(learning: dict[str, Any]) -> str:
    """By what outputs are predicted, and what there is to train from."""
    if not learning["enabled"]:
        return "predictor: off; running figures serve"
    serves = f"model {learning['version']}" if learning["version"] else "running figures (no model yet)"
    found = learning["recorded"] + learning["waiting"]
    line = f"predictor: {serves}; {counted(found, 'completion')} recorded"
    if found < learning["wanted"]:
        return f"{line} of {learning['wanted']:,} to train from"
    return f"{line}; to train: {learning['mend']}" if learning["missing"] else line


def fleet_table(backends: list[dict[str, Any]]) -> Table:
    """One row a backend: what it is, how full (KV: thousands of tokens), its scores; its role where not all
    are active."""
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    roles = any(_role(backend) != "active" for backend in backends)
    for title in ("backend", "GPU", "models", *(["role"] if roles else []), "state"):
        table.add_column(title, no_wrap=title != "models")
    for title in ("in flight", "memory", "KV", "low", "high"):
        table.add_column(title, justify="right", no_wrap=True)
    for backend in backends:
        decision = backend["decision"] or {}
        given = backend["configuration"]
        gpu = " ".join(str(given[key]) for key in ("gpu", "precision") if given.get(key))
        memory, capacity = decision.get("memory"), decision.get("capacity")
        table.add_row(
            backend["id"],
            gpu or "?",
            ", ".join(backend["models"]) or "?",
            *([_role(backend)] if roles else []),
            _state(backend),
            f"{backend['in_flight']:.0f}",
            "?" if memory is None else f"{memory:.0%}",
            "?" if capacity is None else f"{capacity / 1000:.0f}k",
            _score(decision.get("low")),
            _score(decision.get("high")),
        )
    return table


def _role(backend: dict[str, Any]) -> str:
    spare = backend["configuration"].get("role") == "standby" and backend["role"] == "active"
    return "standby, in service" if spare else str(backend["role"])


def _state(backend: dict[str, Any]) -> str:
    shown = backend.get("shown", backend["state"])
    state = f"[{STATES.get(shown, 'default')}]{shown}[/]"
    if backend["state"] == "down":
        return state
    if backend["ejected_by"]:
        return f"{state}, [red]ejected[/]"
    return f"{state}, [yellow]on trial[/]" if backend.get("tried_by") else state


def _score(score: float | None) -> str:
    return "?" if score is None else f"{score:.1f}"


def reasons(backend: dict[str, Any]) -> str:
    """Why a backend has its state and scores, on one line."""
    decision = backend["decision"] or {}
    found = list(decision.get("reasons") or [backend["reason"]])
    if backend.get("shown") == "standby":
        found[0] = f"state: standby: {backend['reason']}"
    found += [f"ejected by {gateway}: {why}" for gateway, why in backend["ejected_by"].items()]
    found += [
        f"tried by {gateway} with single requests after: {why}"
        for gateway, why in backend.get("tried_by", {}).items()
    ]
    return f"{backend['id']}: {'; '.join(found)}"
