"""Named size distributions: the integral agrees with samples, and the presets with the traces they are named after."""

import gzip
from datetime import date
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import UnknownNameError
from fleet.sizes.histogram import SizeBuckets
from fleet.sizes.lognormal_mixture import Component, cell_shares, draw, normal_cdf
from fleet.sizes.presets import builtin_size_presets, preset
from scripts.fit_size_presets import SOURCES, Source, goodness, likeliest, sizes_of

SHARED = Path(__file__).parents[3].parent / "shared" / "data"
NAMES = [entry.name for entry in builtin_size_presets().presets]

components = st.builds(
    Component,
    weight=st.floats(0.05, 1),
    input_mean=st.floats(1, 9),
    input_std=st.floats(0.05, 2),
    output_mean=st.floats(1, 7),
    output_std=st.floats(0.05, 2),
    correlation=st.floats(-0.95, 0.95),
)
edges = st.lists(st.integers(1, 20_000), min_size=1, max_size=6, unique=True).map(sorted)


class TestMixture:
    def test_the_normal_cdf_matches_tabulated_values(self) -> None:
        assert normal_cdf(np.array([-inf, -1.6448536, 0, 1.9599640, inf])) == pytest.approx([0, 0.05, 0.5, 0.975, 1])

    def test_independent_input_and_output_shares_multiply(self) -> None:
        part = Component(weight=1, input_mean=5, input_std=1, output_mean=4, output_std=0.5, correlation=0)
        shares = cell_shares([part], input_edges=(np.exp(5), inf), output_edges=(np.exp(4.5), inf))
        below = float(normal_cdf(np.array([1.0]))[0])
        assert shares.tolist() == pytest.approx(np.outer([0.5, 0.5], [below, 1 - below]))

    def test_a_quadrant_of_correlated_normals_matches_its_closed_form(self) -> None:
        """P(u < m_u, v < m_v) = 1/4 + arcsin(r) / 2 pi (Sheppard, 1899)."""
        for r in (-0.95, -0.5, 0.3, 0.95):
            part = Component(weight=1, input_mean=6, input_std=1.5, output_mean=3, output_std=0.4, correlation=r)
            share = cell_shares([part], input_edges=(np.exp(6), inf), output_edges=(np.exp(3), inf))[0, 0]
            assert share == pytest.approx(0.25 + np.arcsin(r) / (2 * np.pi), abs=1e-9)

    @given(st.lists(components, min_size=1, max_size=3), edges, edges)
    def test_the_cell_shares_of_samples_match_the_integral(
        self, parts: list[Component], input_edges: list[int], output_edges: list[int]
    ) -> None:
        shares = cell_shares(parts, input_edges=(*input_edges, inf), output_edges=(*output_edges, inf))
        assert shares.sum() == pytest.approx(1, abs=1e-9)
        assert (shares >= -1e-12).all()
        count = 20_000
        inputs, outputs = draw(parts, count, rng=np.random.default_rng(5))
        counted, *_ = np.histogram2d(
            np.searchsorted(input_edges, inputs),
            np.searchsorted(output_edges, outputs),
            bins=(np.arange(len(input_edges) + 2) - 0.5, np.arange(len(output_edges) + 2) - 0.5),
        )
        assert counted / count == pytest.approx(shares, abs=5 * np.sqrt(0.25 / count))

    @given(st.lists(components, min_size=1, max_size=3), edges, edges)
    def test_finer_edges_split_cells_and_keep_their_total(
        self, parts: list[Component], input_edges: list[int], output_edges: list[int]
    ) -> None:
        fine = cell_shares(parts, input_edges=(*input_edges, inf), output_edges=(*output_edges, inf))
        coarse = cell_shares(parts, input_edges=(inf,), output_edges=(*output_edges, inf))
        assert fine.sum(axis=0) == pytest.approx(coarse[0], abs=1e-9)


class TestPresets:
    def test_an_unknown_preset_is_refused_with_the_nearest_names(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown size preset 'azure-conversations'; nearest: azure-conv"):
            preset("azure-conversations")

    def test_case_and_underscores_of_preset_names_are_ignored(self) -> None:
        assert preset("Azure_Code") is preset("azure-code")

    @pytest.mark.parametrize("name", NAMES)
    def test_each_preset_has_a_source_and_a_goodness_of_fit(self, name: str) -> None:
        entry = preset(name)
        assert entry.source
        assert entry.licence
        assert entry.citation
        assert entry.date >= date(2026, 11, 21)
        assert entry.requests > 1000
        assert max(entry.fit.input_ks, entry.fit.output_ks) < 0.04
        assert entry.fit.misplaced < 0.1
        assert abs(entry.fit.mean_tokens_ratio - 1) < 0.02
        assert abs(entry.fit.trace_correlation - entry.fit.preset_correlation) < 0.02

    @pytest.mark.parametrize("name", NAMES)
    def test_samples_match_the_buckets(self, name: str) -> None:
        entry = preset(name)
        buckets = entry.buckets()
        inputs, outputs = entry.sample(50_000, rng=np.random.default_rng(3))
        assert inputs.min() >= 1
        assert outputs.min() >= 1
        assert inputs.max() <= entry.longest_input_tokens <= buckets.input_tokens[-1]
        assert outputs.max() <= entry.longest_output_tokens <= buckets.output_tokens[-1]
        sampled = SizeBuckets.from_requests(
            input_tokens=inputs,
            output_tokens=outputs,
            input_edges=buckets.input_tokens,
            output_edges=buckets.output_tokens,
        )
        assert np.array(sampled.share) == pytest.approx(np.array(buckets.share), abs=0.012)

    def test_the_same_generator_draws_the_same_requests(self) -> None:
        first, second = (preset("azure-code").sample(100, rng=np.random.default_rng(9)) for _ in range(2))
        assert np.array_equal(first, second)

    @pytest.mark.parametrize("name", NAMES)
    @given(edges, edges)
    @settings(max_examples=10)
    def test_any_edges_give_a_histogram_of_all_requests(
        self, name: str, input_edges: list[int], output_edges: list[int]
    ) -> None:
        buckets = preset(name).buckets(input_edges, output_edges)
        assert buckets.input_tokens == tuple(input_edges)
        whole = preset(name).buckets(input_edges, (10**6,))
        assert np.array(buckets.share).sum(axis=1) == pytest.approx(np.array(whole.share)[:, 0], abs=1e-9)

    def test_buckets_beyond_the_longest_request_are_empty(self) -> None:
        entry = preset("azure-code")
        longest = entry.longest_input_tokens
        buckets = entry.buckets((longest, 2 * longest, 3 * longest), (10**6,))
        assert [row[0] for row in buckets.share] == pytest.approx([1, 0, 0])

    def test_code_has_longer_inputs_and_shorter_outputs_than_conversations(self) -> None:
        rng = np.random.default_rng(0)
        (code_in, code_out), (chat_in, chat_out) = (
            preset(name).sample(20_000, rng=rng) for name in ("azure-code", "azure-conversation")
        )
        assert code_in.mean() > chat_in.mean()
        assert code_out.mean() < chat_out.mean()


class TestFitting:
    def test_fitting_recovers_the_mixture_of_the_samples(self) -> None:
        truth = (
            Component(weight=0.7, input_mean=7, input_std=0.3, output_mean=5, output_std=0.4, correlation=0.6),
            Component(weight=0.3, input_mean=4, input_std=0.5, output_mean=2, output_std=0.3, correlation=-0.4),
        )
        rng = np.random.default_rng(0)
        blocks = []
        for part, count in zip(truth, (7000, 3000), strict=True):
            covariance = part.correlation * part.input_std * part.output_std
            square = [[part.input_std**2, covariance], [covariance, part.output_std**2]]
            blocks.append(rng.multivariate_normal([part.input_mean, part.output_mean], square, size=count))
        found = likeliest(np.vstack(blocks), 2, starts=2)
        for part, true in zip(found, truth, strict=True):
            assert list(part.model_dump().values()) == pytest.approx(list(true.model_dump().values()), abs=0.05)
        assert all(one.weight >= other.weight for one, other in pairwise(found))

    @pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
    def test_the_shipped_figures_match_the_trace(self, source: Source) -> None:
        if not SHARED.is_dir():
            pytest.skip("the public traces are absent; scripts/fit_size_presets.py names their sources")
        inputs, outputs = sizes_of(source, SHARED)
        entry = preset(source.name)
        assert entry.requests == len(inputs)
        assert entry.longest_input_tokens == inputs.max()
        assert goodness(entry, inputs, outputs) == entry.fit

    def test_traces_may_be_gzipped_or_plain(self, tmp_path: Path) -> None:
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n"
        source = next(each for each in SOURCES if each.name == "azure-code")
        with pytest.raises(SystemExit, match="holds no AzureLLMInferenceTrace_code_2023"):
            sizes_of(source, tmp_path)
        (tmp_path / f"{source.stem}.csv.gz").write_bytes(gzip.compress(text.encode()))
        assert [sizes.tolist() for sizes in sizes_of(source, tmp_path)] == [[374], [44]]
