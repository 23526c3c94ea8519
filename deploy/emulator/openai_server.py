"""One emulated engine as a process: OpenAI completions and chat, `/health`, and the page of metrics of a real engine.

    python -m deploy.emulator.openai_server --gpu H100-SXM --model Llama-3.1-8B --port 0 --time-scale 10 --engine vllm

It listens on loopback and writes `{"url": ...}` to standard output.  At a time scale of 10, rates of counters are ten
times the model's; time histograms are in model seconds at any scale.
"""

import argparse
import asyncio
import json
import sys
from typing import get_args

from pydantic import ValidationError

from deploy.common.shutdown import run_until_sigterm
from deploy.emulator.engine_http import AnswerApp, EngineSpec, HttpEngine, Listener
from deploy.emulator.metric_pages import EngineName
from planner.performance.config import Role


async def serve(spec: EngineSpec, *, port: int) -> None:
    """Serve until cancelled; then requests in flight fail, as those of a killed process do."""
    engine = HttpEngine(spec=spec)
    listener = Listener(AnswerApp(engine.answer), port)
    listener.open()
    sys.stdout.write(json.dumps({"url": listener.url}) + "\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await engine.loop.stop()
        await listener.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.emulator.openai_server", description=__doc__)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--model", default="Llama-3.1-8B")
    parser.add_argument("--gpus", type=int, default=1, help="per replica, with tensor parallelism")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--time-scale", type=float, default=1.0, help="model seconds per second")
    parser.add_argument("--engine", choices=get_args(EngineName), default="vllm")
    parser.add_argument("--engine-version", help="whose names of metrics are used")
    parser.add_argument("--role", choices=get_args(Role), default="both")
    given = vars(parser.parse_args(arguments))
    port = given.pop("port")
    try:
        spec = EngineSpec.model_validate(given)
    except ValidationError as error:
        parser.error("; ".join(item["msg"] for item in error.errors()))
    asyncio.run(run_until_sigterm(serve(spec, port=port)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
