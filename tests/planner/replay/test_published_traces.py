"""An hour of published traces, where present: no request is lost, and the reference simulator agrees."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from fleet.sizes.histogram import SizeBuckets
from fleet.traces import read_trace
from planner.replay import Balancing, ReplayPool, Stream, replay
from tests.planner.replay import reference_engine
from tests.planner.replay.engines import PLAIN, run

PLACES = (os.environ.get("FLEETWRIGHT_POWER_DATA"), Path(__file__).parents[4] / "shared" / "data" / "power")
NAMES = ("AzureLLMInferenceTrace_conv_2023.csv.gz", "AzureLLMInferenceTrace_code_2023.csv.gz")


@pytest.fixture(params=NAMES)
def hour(request: pytest.FixtureRequest) -> Stream:
    """One of the Azure traces of 2023."""
    for place in PLACES:
        if place is not None and (path := Path(place) / request.param).is_file():
            return Stream.of_trace(read_trace(gzip.decompress(path.read_bytes()).decode(), name=request.param))
    pytest.skip(f"{request.param} is absent: FLEETWRIGHT_POWER_DATA can name its folder")


def test_every_request_of_the_hour_is_served(hour: Stream) -> None:
    buckets = hour_buckets(hour)
    routing = {f"{row}x{column}": {"A": 1.0} for row in buckets.input_tokens for column in buckets.output_tokens}
    result = replay(hour, [ReplayPool("A", 2, PLAIN)], routing, buckets, seed=1)
    assert result.unrouted == result.too_long == 0
    assert np.isfinite(result.e2e_s).all()
    assert (result.ttft_s > PLAIN.request_s).all()
    (used,) = result.pools
    assert used.requests == hour.requests
    assert used.iterations <= hour.output_tokens.sum() + hour.input_tokens.sum()


def test_the_first_minutes_match_the_reference_simulator(hour: Stream) -> None:
    sizes = [
        (float(hour.arrival_s[i]), int(hour.input_tokens[i]), int(hour.output_tokens[i]))
        for i in range(min(250, hour.requests))
    ]
    expected = reference_engine.simulate(sizes, PLAIN, replicas=2, balancing=Balancing.MIN_REQUESTS)
    found = run(sizes, ReplayPool("A", 2, PLAIN))
    np.testing.assert_allclose(found.first_s, expected.first_s, rtol=1e-9)
    np.testing.assert_allclose(found.finish_s, expected.finish_s, rtol=1e-9)


def hour_buckets(hour: Stream) -> SizeBuckets:
    """Its histogram on a few edges."""
    return SizeBuckets.from_requests(
        input_tokens=hour.input_tokens,
        output_tokens=hour.output_tokens,
        input_edges=(512, 4096),
        output_edges=(128, 1024),
    )
