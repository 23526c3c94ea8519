"""Rows for tests: Poisson arrivals, each a prompt and then tokens on its own server, metered each 2 s."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from power.arrays import Floats

STEP_S = 2.0
PROMPT_W, TOKEN_W, BASE_W = 3643.0, 1996.0, 107_000.0  # above idle; of 52 idle servers
PROMPT_S, TOKENS_S = 1.2, 40.0


@dataclass(frozen=True)
class Row:
    """Meter readings, and the watts of prompts and tokens in flight at the end of each."""

    watts: Floats
    prompt_w: Floats
    token_w: Floats

    @property
    def drivers_w(self) -> list[list[float]]:
        """The drivers in the form that a forecast takes."""
        drivers: list[list[float]] = np.column_stack([self.token_w, self.prompt_w]).tolist()
        return drivers


def row(*, hours: float, seed: int, rate: float = 0.8, swing: float = 0.3) -> Row:
    """A row whose rate swings over the day."""
    rng = np.random.default_rng(seed)
    end_s = hours * 3600
    arrival = np.sort(rng.uniform(0, end_s, rng.poisson(rate * end_s)))
    arrival = arrival[rng.random(len(arrival)) < 1 - swing + swing * np.cos(2 * np.pi * arrival / 86_400)]
    first = arrival + rng.uniform(0.2, 2 * PROMPT_S - 0.2, len(arrival))
    finish = first + rng.exponential(TOKENS_S, len(arrival))
    edges = STEP_S * np.arange(int(end_s / STEP_S) + 1, dtype=np.float64)
    prompts, prompts_now = _held(arrival, first, edges)
    tokens, tokens_now = _held(first, finish, edges)
    return Row(BASE_W + PROMPT_W * prompts + TOKEN_W * tokens, PROMPT_W * prompts_now, TOKEN_W * tokens_now)


def _held(begin: Floats, end: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """The mean count between each two edges, and the count at the second edge."""
    (began, began_count), (ended, ended_count) = _since(begin, edges), _since(end, edges)
    return np.diff(began - ended) / STEP_S, (began_count - ended_count)[1:].astype(np.float64)


def _since(times: Floats, edges: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the time since all events before each edge, and their number."""
    ordered = np.sort(times)
    count = np.searchsorted(ordered, edges, side="right")
    sums = np.concatenate([[0.0], np.cumsum(ordered)])[count]
    return count * edges - sums, count
