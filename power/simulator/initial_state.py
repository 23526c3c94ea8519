from math import inf

import numpy as np

from power.arrays import Floats
from power.controls import Phase, Priority
from power.server_model import ServerModel
from power.simulator.spec import RowSpec
from power.simulator.state import JOB, KIND, NO_INDEX, POOL, REQUEST, ROW, SERVER, SLOT, WINDOW_S, Records, RowState
from power.workload import Work

_BIAS_STREAM = 1  # of the seed; others draw from streams of their own


def initial_state(spec: RowSpec, work: Work, *, seed: int) -> RowState:
    """Return a row at rest at time 0, its requests in the order of pool and arrival."""
    model = spec.model
    servers = _servers(spec, work, seed=seed)
    leaves = 1 << max(0, len(servers) - 1).bit_length()
    ticks = int(np.ceil(work.duration_s / WINDOW_S))
    state = RowState(
        servers=servers,
        slots=np.zeros((len(servers), _most_together(spec, model)), SLOT),
        requests=_requests(work),
        pools=_pools(work),
        jobs=_jobs(work, sum(pool.servers for pool in work.pools)),
        kinds=np.array([[_kind(spec, each) for each in (model, spec.nominal or model)]], KIND),
        row=_row(spec, seed=seed),
        counts=np.zeros((1, len(Priority), len(Phase))),
        tree=np.full(2 * leaves, inf),
        readings=np.full(ticks, np.nan),
        modelled=np.full(ticks, np.nan),
    )
    _rest(state)
    return state


def _most_together(spec: RowSpec, model: ServerModel) -> int:
    """Return the lower of the memory's and the row's own limit."""
    return model.most_together if spec.together is None else min(model.most_together, spec.together)


def _kind(spec: RowSpec, model: ServerModel) -> tuple[float, ...]:
    beside_w = model.beside * model.gpus
    values = {
        "idle_w": model.idle_w,
        "parked_w": model.parked_w,
        "prompt_floor_w": model.base_w + beside_w * model.prompt.floor_w,
        "prompt_rise_w": beside_w * model.prompt.rise_w,
        "prompt_exponent": model.prompt.exponent,
        "token_floor_w": model.base_w + beside_w * model.token.floor_w,
        "token_rise_w": beside_w * model.token.rise_w,
        "token_exponent": model.token.exponent,
        "batch_exponent": model.token_batch_exponent,
        "prompt_s0": model.prompt_s[0],
        "prompt_s1": model.prompt_s[1],
        "prompt_s2": model.prompt_s[2],
        "batch_growth": model.token_batch_growth,
        "most_together": _most_together(spec, model),
    }
    return tuple(values[name] if name in values else getattr(model, name) for name in KIND.fields or ())


def _servers(spec: RowSpec, work: Work, *, seed: int) -> Records:
    servers = np.zeros(work.servers, SERVER)
    servers["bias"] = np.random.default_rng([_BIAS_STREAM, seed]).normal(1.0, spec.bias, len(servers))
    for name in ("pool", "job", "reads"):
        servers[name] = NO_INDEX
    for name in ("token", "prompt"):
        for clock in ("clock", "lock", "sent", "wanted"):
            servers[f"{name}_{clock}"] = 1.0
    for name in ("nearest", "works_s", "due_s", "brake_due_s"):
        servers[name] = inf
    servers["rate"] = 1.0
    first = 0
    for p, pool in enumerate(work.pools):
        theirs = servers[first : first + pool.servers]
        theirs["pool"], theirs["priority"] = p, pool.priority
        first += pool.servers
    for j, job in enumerate(work.jobs):
        theirs = servers[first : first + job.servers]
        theirs["job"], theirs["phase"] = j, Phase.TRAINING
        first += job.servers
    return servers


def _requests(work: Work) -> Records:
    order = np.argsort(work.pool, kind="stable")
    requests = np.zeros(len(order), REQUEST)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        requests[name] = getattr(work, name)[order]
    for name in ("held_since_s", "start_s", "first_s", "finish_s"):
        requests[name] = np.nan
    requests["server"] = NO_INDEX
    return requests


def _pools(work: Work) -> Records:
    pools = np.zeros(len(work.pools), POOL)
    ends = np.cumsum(np.bincount(work.pool, minlength=len(pools)))
    arrival_s = work.arrival_s[np.argsort(work.pool, kind="stable")]
    first = begin = 0
    for pool, given, end in zip(pools, work.pools, ends, strict=True):
        pool["first"], pool["servers"], pool["priority"] = first, given.servers, given.priority
        pool["head"] = pool["arriving"] = begin
        pool["end"] = end
        pool["arrives_s"] = arrival_s[begin] if begin < end else inf
        first, begin = first + given.servers, end
    return pools


def _jobs(work: Work, first: int) -> Records:
    jobs = np.zeros(len(work.jobs), JOB)
    for job, given in zip(jobs, work.jobs, strict=True):
        job["first"], job["servers"] = first, given.servers
        job["compute_s"] = given.iteration_s * given.compute_share
        job["exchange_s"] = given.iteration_s * (1 - given.compute_share)
        job["compute_w"], job["trough_w"], job["exponent"] = given.compute_w, given.trough_w, given.clock_exponent
        job["start_s"] = job["next_s"] = job["left_s"] = given.start_s
        job["rate"] = 1.0
        first += given.servers
    return jobs


def _row(spec: RowSpec, *, seed: int) -> Records:
    row = np.zeros(1, ROW)
    one = row[0]
    one["ratio"], one["reading_index"], one["meter_factor"] = 1.0, NO_INDEX, 1.0
    one["smoothing"], one["patience_s"] = spec.smoothing, spec.patience_s
    one["delay_windows"] = int(np.ceil(spec.telemetry_delay_s / WINDOW_S))
    one["low_together"] = one["high_together"] = 1
    one["low_limit_w"] = one["high_limit_w"] = inf
    for name in ("low_token", "high_token", "low_prompt", "high_prompt", "training"):
        one[name] = 1.0
    for name in ("stale_from_s", "missing_from_s", "meter_from_s", "ignored_from_s", "late_from_s", "reloaded_s"):
        one[name] = inf
    one["random"] = np.uint64(seed)
    return row


def _rest(state: RowState) -> None:
    """Set idle power, counts and first events."""
    servers, row = state.servers, state.row[0]
    kinds = state.kinds[servers["kind"]]
    servers["watts"] = kinds["idle_w"][:, 0] * servers["bias"]
    servers["modelled_w"] = kinds["idle_w"][:, 1]
    row["row_w"], row["modelled_w"] = _sum(servers["watts"]), _sum(servers["modelled_w"])
    for job in state.jobs:  # it may begin at any moment
        theirs = servers[job["first"] : job["first"] + job["servers"]]
        job["swing_w"] = _sum(job["compute_w"] - theirs["modelled_w"])
        row["swing_w"] += job["swing_w"]
    np.add.at(state.counts, (servers["kind"], servers["priority"], servers["phase"]), 1.0)


def _sum(watts: Floats) -> float:
    """Return the sum in the engine's order of additions."""
    return float(np.cumsum(watts)[-1]) if len(watts) else 0.0
