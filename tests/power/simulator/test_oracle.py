"""The compiled engine against an independent slow simulator."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from power.simulator import RowSpec, simulate
from power.workload import Work
from tests.power.simulator.oracle import Oracle
from tests.power.simulator.rows import SCRIPTS, SMALL, Scripted, works


@settings(
    phases=[Phase.explicit, Phase.generate],  # shrinking works of hundreds of numbers takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    work=works(),
    script=SCRIPTS,
    delay_s=st.sampled_from([0.0, 2.0, 4.0]),
    bias=st.sampled_from([0.0, 0.03]),
    together=st.sampled_from([None, 1, 2]),
)
def test_engine_and_oracle_agree(
    work: Work, script: Scripted, delay_s: float, bias: float, together: int | None
) -> None:
    spec = RowSpec(budget_w=1e8, model=SMALL, bias=bias, telemetry_delay_s=delay_s, together=together)
    outcome = simulate(spec, work, policy=script, bare=True, seed=5)
    oracle = Oracle(
        work,
        SMALL,
        biases=list(np.random.default_rng([1, 5]).normal(1.0, bias, work.servers)),
        script=script.at,
        command_delay_s=script.command_delay_s,
        telemetry_delay_s=delay_s,
        smoothing=spec.smoothing,
        patience_s=spec.patience_s,
        limit=together,
    )
    oracle.run()
    assert outcome.readings_w == pytest.approx(oracle.readings, rel=1e-7)
    assert outcome.modelled_w == pytest.approx(oracle.modelled, rel=1e-7)
    expected = [request for requests in oracle.requests for request in requests]
    for name in ("start_s", "first_s", "finish_s", "held_since_s"):
        times = [getattr(request, name) for request in expected]
        assert getattr(outcome.requests, name) == pytest.approx(times, abs=1e-5, nan_ok=True), name
    assert outcome.iterations.tolist() == [job.iterations for job in oracle.jobs]
