"""`python -m emulator --port N --gpu A100-80G --model llama-3-8b`: an emulated GPU server."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from emulator.app import listen, make_app, make_exporter
from emulator.engine import Exhaustion, Limits
from emulator.server import Server
from emulator.settings import Settings, SettingsError
from tokenweir import facts

EXIT_CRASHED = 70
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m emulator",
        description="An emulated GPU server: OpenAI API, vLLM's and DCGM's metrics, faults on order.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, required=True, help="port of the API; 0 takes a free one and prints it")
    add("--dcgm-port", type=int, help="also serve the GPU's metrics as /metrics on this port")
    add("--gpu", default="A100-80G", help=f"kind of GPU: {', '.join(facts.GPU_NAMES)}")
    add("--gpus", type=int, default=1, help="GPUs that the model is split over")
    add("--model", default="llama-3-8b", help=f"model: {', '.join(facts.MODEL_NAMES)}")
    add("--precision", default="fp16", help="fp16 (bf16), fp8 or int4")
    add("--served-model-name", nargs="+", default=[], help="names to answer to (default: --model as given)")
    add(
        "--kind",
        type=Exhaustion,
        choices=list(Exhaustion),
        default=Exhaustion.PREEMPT,
        help="when KV memory is full: preempt the newest, abort all in flight, or crash the process",
    )
    add("--capacity", type=int, help="KV tokens (default: what fits beside the weights)")
    add("--max-model-len", type=int, help="longest prompt and output (default: model's, at most capacity)")
    add("--max-num-seqs", type=int, default=256, help="most sequences in a batch")
    add("--max-num-batched-tokens", type=int, default=2048, help="most tokens in a step")
    add("--no-prefix-caching", action="store_true", help="compute every prompt in full")
    add("--speed", type=float, default=1.0, help="how many times faster than real time the engine runs")
    add("--startup-seconds", type=float, default=0.0, help="time to load the model; until then 503")
    add("--api-key", default=os.environ.get("EMULATOR_API_KEY"), help="key that /v1/ asks for")
    add("--seed", type=int, default=0, help="what texts, output lengths and random faults depend on")
    add(
        "--kv-bytes",
        type=int,
        default=0,
        help="keep real tensors of so many bytes a token in the prefix cache, to be moved; needs torch",
    )
    add("--kv-port", type=int, default=0, help="port of the agent that moves them (with --kv-bytes)")
    add("--kv-pace", type=float, help="bytes a second that the agent sends at most")
    add("--kv-token-file", type=Path, help="file with the token that the agent asks for")
    add("--journal", type=Path, help="append the ids of executed requests to this file, one a line")
    add(
        "--finish-abandoned",
        action="store_true",
        help="run a non-streamed request on when its client has left, as llama.cpp does",
    )
    return parser


def settings(options: argparse.Namespace) -> Settings:
    """The settings that a command line makes. Raises SettingsError and what `facts` raises."""
    return Settings(
        gpu=facts.gpu(options.gpu).name,
        model=options.model,
        precision=facts.precision(options.precision),
        gpus=options.gpus,
        kind=options.kind,
        capacity=options.capacity,
        max_model_len=options.max_model_len,
        speed=options.speed,
        startup_seconds=options.startup_seconds,
        api_key=options.api_key or None,
        served_names=tuple(options.served_model_name),
        seed=options.seed,
        finish_abandoned=options.finish_abandoned,
        journal=options.journal,
        kv_bytes=options.kv_bytes,
        limits=Limits(
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            prefix_caching=not options.no_prefix_caching,
        ),
    )


def _die() -> None:
    """End as a process does whose GPU memory is exhausted: at once, connections cut."""
    logging.shutdown()
    os._exit(EXIT_CRASHED)


async def serve(found: Settings, options: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    host, port, dcgm_port = options.host, options.port, options.dcgm_port
    server = Server(found, _die)
    listening = [await listen(make_app(server), host, port)]
    if dcgm_port is not None:
        listening.append(await listen(make_exporter(server), host, dcgm_port))
    address = listening[0].addresses[0]
    print(f"emulated {found.gpu} with {found.names[0]} on http://{address[0]}:{address[1]}", flush=True)
    if server.tensors is not None:
        listening.append(await _serve_agent(server, options))
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    # What was made so far lives as long as the process: the collector need not look at it again and again.
    gc.freeze()
    await stopped.wait()
    for runner in listening:
        await runner.cleanup()


async def _serve_agent(server: Server, options: argparse.Namespace) -> web.AppRunner:
    """Serve the agent of a server that keeps tensors."""
    from emulator.handover import Handover  # noqa: PLC0415  (torch takes seconds, and may not be there)
    from kv_agent.agent import Agent  # noqa: PLC0415
    from kv_agent.server import make_app as make_agent_app  # noqa: PLC0415

    if server.tensors is None:
        raise SettingsError("no tensors are kept: --kv-bytes is 0")
    token = options.kv_token_file.read_text().strip() if options.kv_token_file else None
    agent = Agent(
        server.tensors, options.host, token, pace=options.kv_pace, on_piece=server.faults.after_a_piece
    )
    runner = await listen(make_agent_app(agent, token), options.host, options.kv_port)
    server.handover = Handover(agent, *runner.addresses[0][:2])
    print(f"its agent on http://{options.host}:{runner.addresses[0][1]}", flush=True)
    return runner


def _agent_problem(options: argparse.Namespace) -> str | None:
    """Why the agent cannot be served as the options say."""
    if options.kv_bytes and importlib.util.find_spec("torch") is None:
        return "--kv-bytes needs torch (requirements-kv.txt)"
    if not options.kv_bytes and (options.kv_port or options.kv_pace or options.kv_token_file):
        return "--kv-port, --kv-pace and --kv-token-file go with --kv-bytes"
    if options.kv_token_file is not None and not options.kv_token_file.is_file():
        return f"--kv-token-file {options.kv_token_file}: no such file"
    if options.kv_pace is not None and options.kv_pace <= 0:
        return f"--kv-pace must be above 0, got {options.kv_pace}"
    if options.kv_bytes and options.kv_token_file is None and options.host not in LOOPBACK:
        return f"an agent on {options.host} needs --kv-token-file"
    return None


def main() -> int:
    """Run the command line; 2 when it makes no sense."""
    options = arguments().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if problem := _agent_problem(options):
        print(f"error: {problem}", file=sys.stderr)
        return 2
    try:
        found = settings(options)
    except (SettingsError, facts.UnknownFactError, facts.DoesNotFitError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(serve(found, options))
    except OSError as error:
        print(f"error: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
