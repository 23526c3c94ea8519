"""The counts on a page are those of the requests that an emulated engine served."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from deploy.emulator.engine import Engine
from deploy.emulator.metric_pages import EngineName, EngineState, MetricPage, RequestRecord, SglangPage, VllmPage
from deploy.emulator.metric_pages.vllm import one_two_five
from tests.planner.replay.engines import costs

CACHE_TOKENS = 20_000


class Size(NamedTuple):
    prompt: int
    output: int
    loaded: int
    streamed: bool
    cancelled: bool


SIZES = st.lists(
    st.tuples(st.integers(1, 400), st.integers(1, 30), st.floats(0, 1), st.booleans(), st.booleans()).map(
        lambda drawn: Size(drawn[0], drawn[1], min(int(drawn[2] * drawn[0]), drawn[0] - 1), drawn[3], drawn[4])
    ),
    min_size=1,
    max_size=12,
)


def page_of(engine: EngineName) -> MetricPage:
    if engine == "sglang":
        return SglangPage(model="m")
    return VllmPage(model="m", cache_tokens=CACHE_TOKENS, max_model_len=16_384)


def served(page: MetricPage, sizes: list[Size]) -> tuple[list[RequestRecord], Engine]:
    """Serve requests that arrive at once; some are cancelled after their first token."""
    engine = Engine(costs=costs(cache_tokens=CACHE_TOKENS), on_iteration=page.iteration)
    records: dict[str, RequestRecord] = {}
    for at, size in enumerate(sizes):
        records[str(at)] = RequestRecord(
            prompt_tokens=size.prompt,
            output_tokens=size.output,
            arrived_s=0.0,
            loaded_tokens=size.loaded,
            streamed=size.streamed,
        )
        engine.submit(str(at), prompt_tokens=size.prompt, output_tokens=size.output, loaded_tokens=size.loaded)
    ended: set[str] = set()
    while engine.in_flight:
        for token in engine.advance(engine.next_s):
            record = records[token.key]
            if token.key in ended:
                continue
            page.token(record, token)
            if token.index == 0:
                record.started_s, record.first_token_s = token.started_s, token.at_s
            record.last_token_s, record.generated = token.at_s, token.index + 1
            cancelled = sizes[int(token.key)].cancelled and not token.last
            if token.last or cancelled:
                ended.add(token.key)
                page.ended(record, finished=token.last)
                engine.cancel(token.key)
    return list(records.values()), engine


def state_of(engine: Engine) -> EngineState:
    return EngineState(
        now_s=engine.now_s,
        running=engine.in_flight - engine.waiting,
        waiting=engine.waiting,
        cached_tokens=engine.cached_tokens,
        cache_tokens=engine.costs.cache_tokens,
        preemptions=engine.preemptions,
    )


def read(page: MetricPage, engine: Engine) -> dict[str, Metric]:
    text = page.text(state_of(engine)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def total(families: dict[str, Metric], sample: str) -> float:
    """The sum over all series of a sample's name."""
    return sum(each.value for family in families.values() for each in family.samples if each.name == sample)


@given(sizes=SIZES)
def test_vllm_counts_prompts_at_the_first_token_and_outputs_token_by_token(sizes: list[Size]) -> None:
    page = page_of("vllm")
    records, engine = served(page, sizes)
    found = read(page, engine)
    generated = sum(record.generated for record in records)
    assert total(found, "vllm:generation_tokens_total") == generated
    assert total(found, "vllm:prompt_tokens_total") == sum(size.prompt for size in sizes)
    assert total(found, "vllm:prefix_cache_hits_total") == sum(size.loaded for size in sizes)
    assert total(found, "vllm:request_success_total") == len(sizes)
    assert total(found, "vllm:time_to_first_token_seconds_count") == len(sizes)
    assert total(found, "vllm:inter_token_latency_seconds_count") == generated - len(sizes)
    decode_s = sum(record.last_token_s - record.first_token_s for record in records)
    assert total(found, "vllm:inter_token_latency_seconds_sum") == pytest.approx(decode_s)
    assert total(found, "vllm:request_decode_time_seconds_sum") == pytest.approx(decode_s)


@given(sizes=SIZES)
def test_sglang_counts_the_tokens_of_finished_requests(sizes: list[Size]) -> None:
    page = page_of("sglang")
    records, engine = served(page, sizes)
    found = read(page, engine)
    done = [record for record in records if record.generated == record.output_tokens]
    assert total(found, "sglang:num_requests_total") == len(done)
    assert total(found, "sglang:num_aborted_requests_total") == len(records) - len(done)
    assert total(found, "sglang:prompt_tokens_total") == sum(record.prompt_tokens for record in done)
    assert total(found, "sglang:generation_tokens_total") == sum(record.generated for record in done)
    streamed = Counter(str(record.streamed) for record in done)
    counted = {each.labels["is_streaming"]: each.value for each in found["sglang:num_requests"].samples if each.value}
    assert counted == streamed


@given(sizes=SIZES, engine_name=st.sampled_from(["vllm", "sglang"]))
def test_buckets_are_cumulative_and_end_at_the_count(sizes: list[Size], engine_name: EngineName) -> None:
    page = page_of(engine_name)
    _, engine = served(page, sizes)
    for family in read(page, engine).values():
        if family.type != "histogram":
            continue
        buckets: dict[tuple[str, ...], list[float]] = {}
        counts: dict[tuple[str, ...], float] = {}
        for each in family.samples:
            key = tuple(value for label, value in sorted(each.labels.items()) if label != "le")
            if each.name.endswith("_bucket"):
                buckets.setdefault(key, []).append(each.value)
            elif each.name.endswith("_count"):
                counts[key] = each.value
        assert all(values == sorted(values) and values[-1] == counts[key] for key, values in buckets.items())


@given(highest=st.integers(1, 2_000_000))
def test_edges_of_lengths_rise_to_the_longest(highest: int) -> None:
    edges = one_two_five(highest)
    assert list(edges) == sorted(set(edges))
    assert edges[0] == 1
    assert edges[-1] <= highest < 2.5 * edges[-1]


def test_an_old_version_has_old_names_and_the_same_values() -> None:
    sizes = [Size(100, 5, 0, streamed=False, cancelled=False)]
    new, old = (VllmPage(model="m", cache_tokens=CACHE_TOKENS, max_model_len=4096, version=v) for v in ("0.26", "0.10"))
    found = [read(page, served(page, sizes)[1]) for page in (new, old)]
    gaps = total(found[0], "vllm:inter_token_latency_seconds_sum")
    assert gaps > 0
    assert total(found[1], "vllm:time_per_output_token_seconds_sum") == gaps
    assert "vllm:time_per_output_token_seconds" not in found[0]
    assert "vllm:inter_token_latency_seconds" not in found[1]
