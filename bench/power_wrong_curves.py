"""Ours at +45 % where the curves it plans with are wrong: other exponents, other sensitivity, more watts than believed.

The policy and admission believe the shipped curves (exponents 1.3 for prompts, 1.5 for tokens, sensitivity 0.15); the
servers follow others.  The budget comes from a row of the true servers.  Three days around each seed's peak.
"""

from collections.abc import Iterator
from typing import Any

from bench.power_rows import DAYS, Case, Measured, Rows, by_seed, figures, measured
from power.server_model import BLOOM_A100, ServerModel

SERVERS = 58
DAYS_EACH = min(DAYS, 3.0)


def run() -> Rows:
    """A row per kind of error."""
    seeds = by_seed(_of_seed)
    return [{"servers_follow": name, **figures([seed[at] for seed in seeds])} for at, (name, _) in enumerate(truths())]


def truths() -> Iterator[tuple[str, ServerModel]]:
    """What the servers really do."""
    yield "the curves believed", BLOOM_A100
    for exponent in (1.0, 2.0, 3.0):
        yield f"prompt exponent {exponent:g}", _changed(prompt={"exponent": exponent})
        yield f"token exponent {exponent:g}", _changed(token={"exponent": exponent})
    for sensitivity in (0.05, 0.25):
        yield f"decode sensitivity {sensitivity:g}", _changed(token_sensitivity=sensitivity)
    yield "prompts 5 % more watts", _changed(prompt={"rise_w": 1.05 * BLOOM_A100.prompt.rise_w})
    yield "tokens 5 % more watts", _changed(token={"rise_w": 1.05 * BLOOM_A100.token.rise_w})


def _of_seed(seed: int) -> list[Measured]:
    return [
        measured(Case(servers=SERVERS, policy="ladder", seed=seed, days=DAYS_EACH, truth=truth, believed=BLOOM_A100))
        for _, truth in truths()
    ]


def _changed(**changes: Any) -> ServerModel:
    """The shipped server with some figures of its own."""
    update = {
        name: getattr(BLOOM_A100, name).model_copy(update=value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return BLOOM_A100.model_copy(update=update)
