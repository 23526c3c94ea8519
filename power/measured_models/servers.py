"""Fitted curves as a `ServerModel` of a measured engine, for the simulator
(docs/explanation/power/measured-models.md, 5).

The model covers the engine's boards and their share of the server.  Prompts keep the board's clock curve
`f + (1 - f) * c^a`.  Tokens, whose rise depends on the batch, use `idle + rise * c^a'` with the best `a'` over the
fitted clocks.  Assumed as for `BLOOM_A100`: the power of a parked server, its wake time, the brake clock.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from fleet.catalogues import folded
from fleet.documents import RuleError
from fleet.errors import UnknownNameError
from fleet.gpus import GpuSpec, builtin_gpus
from power.measured_models.document import ClockShares, Engine, PowerShares
from power.server_model import BLOOM_A100, Draw, ServerModel

CLOCKS_TRIED = 29
EXPONENTS = np.arange(0.2, 4.0, 0.01)
TOKEN_FLOOR_TIME = BLOOM_A100.token_floor_time
PARKED_W_PER_BOARD = BLOOM_A100.parked_w / BLOOM_A100.gpus
UNKNOWN_CLOCK_MHZ = 1000.0  # clocks are shares; the figure is for output only


def server_model(
    curves: PowerShares, gpu: GpuSpec, *, model: str, together: int = 1, gpus: int | None = None, layout: str = ""
) -> ServerModel:
    """Return the model of servers with up to `together` requests; terms of the layout select among engines."""
    engine = engine_of(curves, gpu, model=model, gpus=gpus, layout=layout)
    if not engine.batches[0] / 2 <= together <= 2 * engine.batches[1]:
        low, high = engine.batches
        message = f"must be near the measured batches, {low:g} to {high:g}, got {together}"
        raise RuleError([(("together",), message)])
    prompt_w = gpu.rated_w * (engine.prompt_share or curves.board(gpu).busy_share.high)
    exponent = clock_exponent(engine.share(together), engine.idle_share, curves.clock)
    server, clock, idle_w = curves.server, curves.clock, engine.idle_share * gpu.rated_w
    return ServerModel(
        name=f"{engine.gpus}x{gpu.name} {engine.model} {engine.layout}"[:100].strip(),
        gpus=engine.gpus,
        gpu_idle_w=idle_w,
        prompt=Draw(
            floor_w=clock.floor_share * prompt_w, rise_w=(1 - clock.floor_share) * prompt_w, exponent=clock.exponent
        ),
        token=Draw(floor_w=idle_w, rise_w=engine.rise_share * gpu.rated_w, exponent=exponent),
        token_batch_exponent=_exponent_up_to(engine, together),
        base_w=server.base_share_of_tdp * gpu.rated_w * engine.gpus,
        beside=1 + server.share_of_gpu,
        parked_w=PARKED_W_PER_BOARD * engine.gpus,
        wake_s=BLOOM_A100.wake_s,
        prompt_s=engine.prompt_s or _scaled_prompt_s(curves, gpu, engine),
        token_s=engine.token_s,
        token_batch_growth=engine.token_batch_growth,
        prompt_sensitivity=curves.clock.compute_sensitivity.mid,
        token_sensitivity=curves.clock.memory_sensitivity.mid,
        token_floor_time=TOKEN_FLOOR_TIME,
        most_together=together,
        full_clock_mhz=float(gpu.clock_max_mhz or UNKNOWN_CLOCK_MHZ),
        brake_clock=BLOOM_A100.brake_clock,
    )


def engine_of(curves: PowerShares, gpu: GpuSpec, *, model: str, gpus: int | None = None, layout: str = "") -> Engine:
    """Return the measured engine that fits; of several the one with the smallest error of power."""
    here = [one for one in curves.engines if folded(one.gpu) == folded(gpu.name) and one.rise_share > 0]
    named = [one for one in here if folded(model) in _names(one)]
    if not named:
        raise UnknownNameError(kind=f"engine on {gpu.name}", name=model, known={one.model for one in here})
    terms = set(layout.split())
    fitting = [one for one in named if terms <= set(one.layout.split()) and gpus in (None, one.gpus)]
    if not fitting:
        known = sorted({f"{one.gpus} boards, {one.layout}" for one in named})
        raise RuleError([(("layout",), f"must be among those measured of {model}: {'; '.join(known)}")])
    return min(fitting, key=lambda one: (one.prompt_s is None, one.power_error.mean if one.power_error else 1.0))


def clock_exponent(share: float, idle_share: float, clock: ClockShares) -> float:
    """Return `a'` of idle + rise * c^a' nearest to share * (f + (1 - f) * c^a)."""
    clocks = np.linspace(clock.lowest, 1.0, CLOCKS_TRIED)
    wanted = share * (clock.floor_share + (1 - clock.floor_share) * clocks**clock.exponent)
    found = idle_share + (share - idle_share) * clocks[None, :] ** EXPONENTS[:, None]
    return round(float(EXPONENTS[np.argmin(np.sum((found / wanted - 1) ** 2, axis=1))]), 4)


def _names(engine: Engine) -> Iterator[str]:
    yield folded(engine.model)
    yield folded(engine.model.rpartition("/")[2])


def _exponent_up_to(engine: Engine, together: int) -> float:
    """Return the exponent that reaches the measured power at `together`, if that is beyond the saturation."""
    if together <= engine.saturation or together == 1:
        return engine.batch_exponent
    return float(engine.batch_exponent * np.log(engine.saturation) / np.log(together))


def _scaled_prompt_s(curves: PowerShares, gpu: GpuSpec, engine: Engine) -> tuple[float, float, float]:
    """Return prompt times from the engine with the nearest number of boards, preferably of this type: arithmetic
    grows with the parameters used per token and board, and shrinks with the board's rate.
    """
    boards = builtin_gpus().index
    timed = [(one, one.prompt_s, boards[folded(one.gpu)]) for one in curves.engines if _timed_on_known(one, boards)]
    timed = [each for each in timed if each[0].gpu == engine.gpu] or timed
    if not timed:
        raise RuleError([(("prompt_s",), "no table in these curves timed prompts; add one of the kind splitwise-sim")])
    near, seconds, board = min(
        timed, key=lambda each: (abs(np.log(each[0].gpus / engine.gpus)), -each[0].active_billions)
    )
    ratio = (engine.active_billions / engine.gpus) / (near.active_billions / near.gpus)
    fixed, each, square = seconds or (0.0, 0.0, 0.0)
    ratio *= _rate(board) / _rate(gpu)
    return fixed, each * ratio, square * ratio


def _timed_on_known(engine: Engine, boards: Mapping[str, GpuSpec]) -> bool:
    return engine.prompt_s is not None and folded(engine.gpu) in boards


def _rate(gpu: GpuSpec) -> float:
    return max(gpu.dense_tflops.get(precision, 0.0) for precision in ("bf16", "fp16", "fp32")) or 1.0
