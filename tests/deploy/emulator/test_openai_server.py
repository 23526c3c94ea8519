"""An engine as a process: an OpenAI client is served, and the page of metrics counts its requests."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.emulator.openai_server import main
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_for

TIME_SCALE = 50.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    argv = [sys.executable, "-m", "deploy.emulator.openai_server", "--gpu", "H100-SXM", "--time-scale", str(TIME_SCALE)]
    with Process.start(argv, name="engine", log_dir=tmp_path, cwd=Path(__file__).parents[3]) as process:
        process.wait_ready(lambda: '"url"' in process.log_tail())
        url = json.loads(process.log_tail(1))["url"]
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as found:
            yield found
        assert process.stop() == 0


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").raise_for_status().text)
    samples = (each for family in families for each in family.samples if each.name == name)
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def test_whole_and_streamed_responses_are_counted_with_model_times(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    assert client.get("/v1/models").json()["data"][0]["id"] == "Llama-3.1-8B"
    request = {"prompt": "x" * 4000, "max_tokens": 50}
    whole = client.post("/v1/completions", json=request).raise_for_status().json()
    assert whole["usage"] == {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
    streamed = request | {"stream": True, "stream_options": {"include_usage": True}}
    events = client.post("/v1/completions", json=streamed).raise_for_status().text.split("\n\n")
    assert (len(events), events[-2]) == (53, "data: [DONE]")
    last = json.loads(events[-3].removeprefix("data: "))
    assert last["emulator"] == whole["emulator"]
    assert sample(client, "vllm:prompt_tokens_total") == 2000
    assert sample(client, "vllm:generation_tokens_total") == 100
    assert sample(client, "vllm:request_success_total", finished_reason="length") == 2
    e2e_s = sample(client, "vllm:e2e_request_latency_seconds_sum", model_name="Llama-3.1-8B", engine="0")
    assert e2e_s == pytest.approx(2 * whole["emulator"]["e2e_s"], rel=1e-4)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_whose_client_leaves_is_withdrawn(client: httpx.Client, stream: bool) -> None:  # noqa: FBT001
    request = {"prompt": "x", "max_tokens": 200_000, "stream": stream}
    with pytest.raises(httpx.ReadTimeout), client.stream("POST", "/v1/completions", json=request, timeout=0.5) as found:
        for _ in found.iter_bytes():
            raise httpx.ReadTimeout("the client has enough")
    wait_for(lambda: sample(client, "vllm:request_success_total", finished_reason="abort"), what="an aborted request")
    assert sample(client, "vllm:num_requests_running") == 0


def test_a_request_without_a_prompt_and_an_unknown_path_are_refused(client: httpx.Client) -> None:
    assert client.post("/v1/completions", json={"max_tokens": 1}).status_code == 400
    assert client.post("/v1/completions", json={"prompt": "x", "max_tokens": 10**6}).status_code == 400
    assert client.get("/v1/unknown").status_code == 404


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "H1000"], "H1000"),
        (["--gpu", "L4", "--model", "Llama-3.1-70B"], "Llama-3.1-70B on 1 L4"),
        (["--gpu", "L4", "--engine-version", "0.1"], "unknown version '0.1' of vllm; allowed: 0.10"),
        (["--gpu", "L4", "--engine", "triton"], "triton"),
    ],
)
def test_an_invalid_command_line_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
