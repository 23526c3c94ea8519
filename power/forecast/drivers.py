"""What routers know of a row beside its meter, in watts: the drivers that `RowForecast` learns the weight of.

A meter's word is a mean over the seconds behind; the counts of servers by phase are of now.  A router knows more: how
long a prompt is, hence when it will have been read, and how many requests wait for a server.  How many tokens an answer
will have nobody knows; how that shows in the next seconds is learnt, as the weight of the token driver.
"""

from collections.abc import Sequence

import numpy as np

from power.controls import Phase, Priority
from power.server_model import ServerModel
from power.telemetry import Floats


def phase_drivers_w(counts: Floats, kinds: Sequence[ServerModel]) -> tuple[float, float]:
    """Watts above idle of servers that write tokens and of servers that read prompts, at full clock.

    `counts` is as a policy sees it: [kind of server, priority, phase].
    """
    token_w = prompt_w = 0.0
    for kind, model in enumerate(kinds):
        of_phase = counts[kind, Priority.LOW] + counts[kind, Priority.HIGH]
        token_w += float(of_phase[Phase.TOKEN]) * (model.token_w() - model.idle_w)
        prompt_w += float(of_phase[Phase.PROMPT]) * (model.prompt_w() - model.idle_w)
    return token_w, prompt_w


def ending_driver_w(left_s: Floats, rise_w: float, *, step_s: float = 2.0) -> float:
    """Watts above idle that the prompts in flight will draw in the next reading, by the time each has left."""
    return rise_w * float(np.minimum(left_s, step_s).sum()) / step_s
