import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.demand.density import Floats, estimate_density, exact_density

EDGES = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
SHARED = Path(__file__).parents[4] / "shared" / "data"

sizes = st.lists(st.integers(1, 400_000), min_size=1, max_size=60)


def rows(values: Floats, *, every: int) -> tuple[Floats, Floats]:
    """Counts per bucket and sums of scrapes of `every` requests each."""
    buckets = np.searchsorted(EDGES, values)
    scrape = np.arange(len(values)) // every
    counts: Floats = np.zeros((scrape[-1] + 1, len(EDGES) + 1))
    np.add.at(counts, (scrape, buckets), 1)
    return counts, np.bincount(scrape, values).astype(float)


class TestInvariants:
    @given(values=sizes, every=st.integers(1, 30))
    def test_the_counts_of_buckets_and_the_mean_are_exact(self, values: list[int], every: int) -> None:
        found = np.array(values, dtype=float)
        counts, sums = rows(found, every=every)
        density = estimate_density(EDGES, counts=counts, sums=sums, floor=0.5)
        assert density is not None
        assert density.share.sum() == pytest.approx(1)
        assert density.shares_on([*EDGES, 1e9])[: len(EDGES)] == pytest.approx(counts.sum(axis=0)[:-1] / len(values))
        assert density.mean == pytest.approx(found.mean())

    @given(values=sizes, p=st.floats(0.01, 0.99))
    def test_a_quantile_lies_in_its_bucket(self, values: list[int], p: float) -> None:
        counts, sums = rows(np.array(values, dtype=float), every=5)
        density = estimate_density(EDGES, counts=counts, sums=sums, floor=0.5)
        assert density is not None
        low, high = density.bracket(p)
        assert low <= density.quantile(p) * (1 + 1e-9)
        assert high is None or density.quantile(p) <= high * (1 + 1e-9)

    def test_without_requests_there_is_no_distribution(self) -> None:
        assert estimate_density(EDGES, counts=np.zeros((2, len(EDGES) + 1)), sums=np.zeros(2), floor=0.5) is None

    @given(values=sizes)
    def test_known_sizes_are_kept(self, values: list[int]) -> None:
        density = exact_density(values)
        assert density.mean == pytest.approx(np.mean(values))
        assert density.quantile(0.5) == pytest.approx(np.quantile(values, 0.5, method="inverted_cdf"))


class TestSumsOfScrapes:
    def test_find_the_mean_inside_a_bucket_that_counts_alone_hide(self) -> None:
        generator = np.random.default_rng(3)
        spike = generator.uniform(1000, 1060, 20_000)  # at the lower end of a bucket, as a common prompt makes it
        values = np.where(generator.random(20_000) < 0.4, spike, generator.lognormal(6.5, 1.0, 20_000))
        by_scrape, hidden = (
            estimate_density(EDGES, counts=counts, sums=sums, floor=0.5)
            for counts, sums in (rows(values, every=5), rows(values, every=len(values)))
        )
        assert by_scrape is not None
        assert hidden is not None
        truth = float(np.quantile(values, 0.6))
        assert by_scrape.quantile(0.6) == pytest.approx(truth, rel=0.1)
        assert abs(by_scrape.quantile(0.6) - truth) < abs(hidden.quantile(0.6) - truth)


def azure(kind: str) -> tuple[Floats, Floats]:
    path = SHARED / "power" / f"AzureLLMInferenceTrace_{kind}_2023.csv.gz"
    if not path.exists():
        pytest.skip("the public traces are not beside the checkout")
    with gzip.open(path, "rt") as file:
        found = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    inputs, outputs = np.array(found, dtype=float).T
    return inputs, outputs


def mooncake() -> tuple[Floats, Floats]:
    path = SHARED / "serving" / "traces" / "mooncake_conversation.jsonl.gz"
    if not path.exists():
        pytest.skip("the public traces are not beside the checkout")
    with gzip.open(path, "rt") as file:
        found = [(row["input_tokens"], row["output_tokens"]) for row in map(json.loads, file)]
    inputs, outputs = np.array(found, dtype=float).T
    return inputs, outputs


@pytest.mark.parametrize("trace", ["azure code", "azure conversation", "mooncake"])
def test_public_traces_are_estimated_from_scrapes(trace: str) -> None:
    """The mean within 1 %, p50 within 10 % and p99 within 20 %, from about 70 requests per scrape."""
    values = mooncake() if trace == "mooncake" else azure({"azure code": "code"}.get(trace, "conv"))
    for side in values:
        counts, sums = rows(side, every=70)
        density = estimate_density(EDGES, counts=counts, sums=sums, floor=0.5)
        assert density is not None
        assert density.mean == pytest.approx(side.mean(), rel=0.01)
        assert density.quantile(0.5) == pytest.approx(np.quantile(side, 0.5), rel=0.1)
        assert density.quantile(0.99) == pytest.approx(np.quantile(side, 0.99), rel=0.2)
