"""One result in the format of each tool, written by hand after the source of the tool.  Every figure is invented."""

import json
from typing import Any

VLLM: dict[str, Any] = {
    "date": "20261103-142530",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "label": None,
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 200,
    "gpu": "NVIDIA H100 80GB HBM3",
    "tp": "2",
    "version": "0.19.0",
    "dtype": "bfloat16",
    "request_rate": 4.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 50.0,
    "completed": 200,
    "failed": 0,
    "total_input_tokens": 204800,
    "total_output_tokens": 51200,
    "request_throughput": 3.9,
    "request_goodput": None,
    "output_throughput": 998.4,
    "total_token_throughput": 4992.0,
    "max_output_tokens_per_s": 1500.0,
    "max_concurrent_requests": 31,
    "mean_ttft_ms": 60.0,
    "median_ttft_ms": 50.0,
    "std_ttft_ms": 20.0,
    "p99_ttft_ms": 150.0,
    "mean_tpot_ms": 12.0,
    "median_tpot_ms": 11.5,
    "std_tpot_ms": 1.0,
    "p99_tpot_ms": 15.0,
    "mean_itl_ms": 12.1,
    "median_itl_ms": 11.0,
    "std_itl_ms": 5.0,
    "p99_itl_ms": 40.0,
}

VLLM_DETAILS: dict[str, Any] = {
    "completed": 4,
    "failed": 1,
    "total_input_tokens": 4000,
    "total_output_tokens": 13,
    "input_lens": [1000, 1000, 1000, 1000, 1000],
    "output_lens": [5, 5, 2, 0, 1],
    "ttfts": [0.1, 0.2, 0.3, 0.0, 0.4],
    "itls": [[0.01, 0.01, 0.01, 0.01], [0.02, 0.02, 0.02, 0.02], [0.05], [], []],
    "generated_texts": ["", "", "", "", ""],
    "errors": ["", "", "", "connection reset", ""],
}

SGLANG: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 8.0,
    "max_concurrency": None,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "random_output_len": 256,
    "random_range_ratio": 1.0,
    "server_info": {
        "model_path": "Qwen/Qwen3-32B",
        "tp_size": 4,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "dtype": "auto",
        "quantization": "fp8",
        "version": "0.5.9",
    },
    "duration": 40.0,
    "completed": 300,
    "total_input_tokens": 307200,
    "total_output_tokens": 76800,
    "total_output_tokens_retokenized": 76700,
    "request_throughput": 7.5,
    "input_throughput": 7680.0,
    "output_throughput": 1920.0,
    "mean_e2e_latency_ms": 5000.0,
    "median_e2e_latency_ms": 4800.0,
    "std_e2e_latency_ms": 300.0,
    "p90_e2e_latency_ms": 6000.0,
    "p99_e2e_latency_ms": 7000.0,
    "mean_ttft_ms": 120.0,
    "median_ttft_ms": 100.0,
    "std_ttft_ms": 50.0,
    "p99_ttft_ms": 400.0,
    "mean_tpot_ms": 19.0,
    "median_tpot_ms": 18.5,
    "std_tpot_ms": 2.0,
    "p99_tpot_ms": 25.0,
    "mean_itl_ms": 19.0,
    "median_itl_ms": 17.0,
    "std_itl_ms": 9.0,
    "p95_itl_ms": 50.0,
    "p99_itl_ms": 80.0,
    "concurrency": 37.5,
    "accept_length": None,
    "max_concurrent_requests": 60,
}


def distribution(mean: float, p50: float, p90: float, p95: float, p99: float) -> dict[str, Any]:
    """GuideLLM's summary of one metric of successful requests."""
    percentiles = {"p001": p50, "p01": p50, "p05": p50, "p10": p50, "p25": p50, "p50": p50}
    percentiles |= {"p75": p90, "p90": p90, "p95": p95, "p99": p99, "p999": p99}
    summary = {"mean": mean, "median": p50, "mode": p50, "variance": 1.0, "std_dev": 1.0, "min": p50, "max": p99}
    return {"successful": summary | {"count": 120, "total_sum": mean * 120, "percentiles": percentiles, "pdf": None}}


def guidellm_benchmark(strategy: dict[str, Any], rate_rps: float) -> dict[str, Any]:
    """One benchmark of a report."""
    return {
        "type_": "generative_benchmark",
        "config": {"run_id": "r", "run_index": 0, "strategy": strategy, "backend": {}},
        "start_time": 1793715000.0,
        "end_time": 1793715060.0,
        "metrics": {
            "request_totals": {"successful": 120, "incomplete": 3, "errored": 2, "total": 125},
            "requests_per_second": distribution(rate_rps, rate_rps, rate_rps, rate_rps, rate_rps),
            "request_concurrency": distribution(6.5, 6.0, 8.0, 8.0, 9.0),
            "request_latency": distribution(2.5, 2.4, 3.0, 3.1, 3.5),
            "prompt_token_count": distribution(512.0, 512.0, 512.0, 512.0, 512.0),
            "output_token_count": distribution(128.0, 128.0, 128.0, 128.0, 128.0),
            "time_to_first_token_ms": distribution(80.0, 70.0, 110.0, 130.0, 200.0),
            "time_per_output_token_ms": distribution(19.5, 19.0, 22.0, 23.0, 25.0),
            "inter_token_latency_ms": distribution(18.0, 17.5, 20.0, 21.0, 22.0),
        },
    }


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 1, "guidellm_version": "0.5.0"},
    "args": {"target": "http://localhost:8000", "model": "meta-llama/Llama-3.1-70B-Instruct"},
    "benchmarks": [
        guidellm_benchmark({"type_": "synchronous", "max_concurrency": 1}, 0.4),
        guidellm_benchmark({"type_": "concurrent", "streams": 8, "max_concurrency": 8}, 2.6),
        guidellm_benchmark({"type_": "poisson", "rate": 3.0, "max_concurrency": 512}, 2.9),
        guidellm_benchmark({"type_": "throughput", "max_concurrency": 512}, 6.0),
    ],
}

GUIDELLM_0_3: dict[str, Any] = {
    "benchmarks": [
        {
            "args": {"strategy": {"type_": "constant", "rate": 2.0}},
            "run_stats": {"start_time": 1793715000.0, "requests_made": {"successful": 100, "errored": 1}},
            "worker": {"backend_model": "meta-llama/Llama-3.1-8B-Instruct"},
            "metrics": {
                name: values
                for name, values in guidellm_benchmark({}, 1.9)["metrics"].items()
                if name != "request_totals"
            },
        }
    ]
}

SILICON = """\
id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,gemm_quant_mode,moe_quant_mode,\
batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,prefill_batch_size,silicon_ttft_ms,silicon_tpot_ms
a,db-dump/2026-01-01; config_id=1; measured=2026-02-03T00:00:00.000Z,vllm,0.19.0,Qwen/Qwen3-32B,h100_sxm,fp8,agg,1024,\
101,fp8_block,fp8,8,2,1,,1,0,,200.0,18.0
b,db-dump/2026-01-01,sglang,,Qwen/Qwen3-32B,b200_sxm,fp4,agg,1024,101,nvfp4,nvfp4,16,4,1,4,1,16,,100.0,9.0
c,db-dump/2026-01-01,trtllm,1.2,Qwen/Qwen3-32B,b200_sxm,fp4,disagg,1024,101,nvfp4,nvfp4,16,,,,,,2,100.0,9.0
"""

OWN = """\
points:
  - model: Llama-3.1-8B
    gpu: H100
    input_tokens: 1000
    output_tokens: 200
    concurrency: 16
    achieved_rps: 5
    tpot_ms: {mean: 12, p99: 20}
    date: 2026-11-03
    source: lab notebook
"""

OWN_CSV = """\
model,gpu,tensor_parallel,precision,engine,engine_version,input_tokens,output_tokens,offered_rps,achieved_rps,\
ttft_mean_ms,ttft_p99_ms,tpot_mean_ms,date,source
Llama-3.1-8B,L4,1,fp8,vllm,0.19,500,100,2,1.9,150,600,40,2026-11-03,lab
Llama-3.1-8B,L4,1,fp8,vllm,0.19,500,100,4,3.5,300,2500,60.5,2026-11-03,lab
"""


def text(*results: dict[str, Any]) -> str:
    """JSON lines."""
    return "\n".join(map(json.dumps, results))
