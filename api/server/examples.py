"""Examples of every request body, for the OpenAPI document and for the tests of both clients.

A service without documents accepts them in the order of `bodies`, each under its names in `NAMES`; a test sends them
all.  The moments are those of the tests.
"""

from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any, Final

from fleet.documents import Frozen
from fleet.gpus import GpuCatalogue, builtin_gpus
from fleet.models import ModelCatalogue, builtin_models

Json = dict[str, Any]

GPU: Final = "H100-SXM"
MODEL: Final = "Llama-3.1-8B"
NODE: Final = "gpu-7"
MOMENT: Final = "2026-11-21T12:00:00Z"
DIGEST: Final = "6c1b0f8a" * 8

NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "put_project": {"name": "team-a"},
    "put_power_tree": {"name": "north"},
    "put_power_budget": {"domain": "row-1"},
    "put_stock": {"name": "prod"},
    "explain_plan": {"id": "0197a1f0-3c1e-7aa0-9d43-52f1a4c1b2d3"},  # the answer to `create_plan` names it
    "replay_plan": {"id": "0197a1f0-3c1e-7aa0-9d43-52f1a4c1b2d3"},
    "put_diagnosis_expiry": {"diagnosis_id": "0197a1f0-3c1e-7aa0-9d43-52f1a4c1b2d3"},  # its answer names it
    "request_node_action": {"node": NODE},
    "put_remediation_case": {"case_id": "0197a1f0-3c1e-7aa0-9d43-52f1a4c1b2d3"},
    "put_health_event": {"event_id": "slurm-52f1a4c1b2d30f96"},
    "put_target": {"name": "chat"},
    "put_target_status": {"name": "chat"},
    "approve_target": {"name": "chat"},
    "put_planning_loop": {"name": "chat"},
    "put_planning_loop_status": {"name": "chat"},
    "set_planning_loop_plan": {"name": "chat"},
    "put_lease": {"name": "controller"},
}
_PLAN: Final[Json] = {
    "workloads": [
        {
            "name": "chat",
            "rate_rps": 10.0,
            "buckets": {"input_tokens": [1000], "output_tokens": [500], "share": [[1.0]]},
            "options": [{"name": "h100", "gpu": "H100", "price_usd_per_h": 3.0, "max_rps": [[5.0]]}],
        }
    ],
    "time_limit_s": 90.0,
}
_TREE: Final[Json] = {"name": "north", "feeds": [{"name": "row-1", "kind": "row", "limit_w": 200_000.0}]}
_STOCK: Final[Json] = {
    "observed_at": MOMENT,
    "stale_after_s": 300.0,
    "source": "a Kubernetes cluster",
    "entries": [
        {
            "gpu": GPU,
            "region": "eu-north",
            "gpus_per_node": 8,
            "total": 24,
            "available": 12,
            "unavailable": {"cordoned": 8, "foreign_pod": 4},
            "free": [{"gpus": 8, "nodes": 1}, {"gpus": 4, "nodes": 1}],
        }
    ],
}
_RULES: Final[Json] = {"mode": "recommend", "min_confidence": 0.9}

# Two rings between two leaves with two cables: one cable per ring, unless a hash puts both on one.
_PATHS: Final[Json] = {
    "job": {
        "name": "pretrain",
        "rings": [{"name": f"ring-{each}", "members": [f"n0{each}", f"n1{each}"]} for each in (0, 1)],
    },
    "topology": {
        "sites": [
            {
                "name": "north",
                "network": [
                    {"name": "leaf-[0-1]", "tier": "leaf", "uplinks": ["spine-[0-1]"], "link_gb_per_s": 25},
                    {"name": "spine-[0-1]", "tier": "spine"},
                ],
                "nodes": [{"name": f"n{leaf}[0-1]", "nic_gb_per_s": 25, "leaves": [f"leaf-{leaf}"]} for leaf in (0, 1)],
            }
        ]
    },
}

# What the example of `create_placement` gives.
_PLACEMENT: Final[Json] = {
    "experts": 4,
    "slots": 6,
    "gpus": 2,
    "nodes": 1,
    "layers": [0, 1],
    "hidden_layers": 2,
    "dispatch": "equal",
    "imbalance": {"mean": 1.0, "max": 1.0, "per_layer": [1.0, 1.0]},
    "bound": {"mean": 1.0, "max": 1.0, "per_layer": [1.0, 1.0]},
    "holds": True,
    "remote_nodes_per_token": None,
    "moved_copies": None,
    "solve_s": 0.001,
    "predictions": {
        "imbalance_by_rule": {"equal": 1.0, "nearest": 1.0},
        "before": {"what": "contiguous", "imbalance": {"mean": 1.25, "max": 1.5, "per_layer": [1.0, 1.5]}},
    },
    "provenance": {"version": "0.2.0", "loads": [{"format": "request"}], "windows": 1},
    "physical_to_logical_map": [[0, 3, 1, 0, 2, 1], [3, 2, 0, 3, 1, 0]],
    "loads": [[4, 2, 1, 1], [1, 1, 1, 5]],
}
_RESULTS: Final = """\
model,gpu,tensor_parallel,input_tokens,output_tokens,offered_rps,achieved_rps,ttft_mean_ms,ttft_p99_ms,tpot_mean_ms
Llama-3.1-8B,H100-SXM,1,500,100,8,7.9,50,210,9.5
Llama-3.1-8B,H100-SXM,1,500,100,16,15.1,95,640,14.2
"""


@cache
def bodies() -> Mapping[str, Any]:
    """Return the example of each operation with a body, by its id."""
    return {
        "put_project": {"quotas": {"queued_jobs": 20, "plans_per_day": 500}},
        "create_token": {"name": "ci", "scopes": ["read", "plan"], "expires_in_s": 86_400},
        "put_offers": {
            "offers": [
                {
                    "id": "own/hall-1/8xh100",
                    "provider": "own",
                    "region": "hall-1",
                    "market": "owned",
                    "gpu": GPU,
                    "gpus_per_instance": 8,
                    "price_usd_per_h": 14.4,
                    "available": 4,
                    "as_of": "2026-11-21",
                    "source": "own depreciation and power",
                }
            ]
        },
        "put_topology": {
            "sites": [
                {
                    "name": "hall-1",
                    "power": [{"name": "rack-1", "kind": "rack", "limit_w": 40_000.0}],
                    "network": [{"name": "leaf-1", "tier": "leaf"}],
                    "nodes": [
                        {"name": "gpu-[0-7]", "power_domain": "rack-1", "leaves": ["leaf-1"], "gpu": GPU, "gpus": 8}
                    ],
                }
            ]
        },
        "assess_placement": {"placement": _PLACEMENT, "loads": [[1, 1, 2, 4], [5, 1, 1, 1]], "max_imbalance": 1.1},
        "forecast_power": {
            "at_s": [2.0 * number for number in range(60)],
            "watts": [150_000.0 + 4_000.0 * (number % 7) for number in range(60)],
        },
        "import_profiles": {
            "results": [{"name": "chat.csv", "text": _RESULTS}],
            "engine": "vllm",
            "precision": "fp8",
            "date": "2026-11-21",
        },
        "fit_profiles": {"rows": _measured(), "source": "own bench", "date": "2026-11-21", "validation": False},
        "put_gpus": _written(GpuCatalogue(gpus=(builtin_gpus().get(GPU),))),
        "put_models": _written(ModelCatalogue(models=(builtin_models().get(MODEL),))),
        "validate_plan": _PLAN,
        "create_plan": _PLAN,
        "explain_plan": {"level": "full"},
        "replay_plan": {"hours": 0.1, "seed": 0},
        "create_sweep": {"request": _PLAN, "axes": [{"knob": "rate", "factors": [0.5, 1.0]}]},
        "create_placement": {"loads": [[4, 2, 1, 1], [1, 1, 1, 5]], "slots": 6, "gpus": 2, "nodes": 1},
        "put_power_tree": _TREE,
        "put_power_budget": {"limit_w": 150_000.0, "expires_at": "2026-11-21T13:00:00Z"},
        "put_stock": _STOCK,
        "create_power_plan": {"tree": _TREE, "terms": {"risk": 0.001}},
        "create_power_simulation": {"servers": 8, "budget_servers": 8, "policy": "ladder", "days": 0.02, "seed": 1},
        "create_fault_simulation": {"ranks": 128, "hours": 0.02, "scenario": "healthy", "seed": 1},
        "plan_fault_paths": _PATHS,
        "report_diagnosis": {
            "job": "llm-7b",
            "diagnosis": {
                "fault": "crash",
                "scope": "node",
                "node": 0,
                "onset_s": 10.0,
                "detected_s": 10.5,
                "isolate": True,
                "confidence": 0.99,
                "reason": f"all sockets of {NODE} vanished",
                "evidence": ["peer-reset"],
            },
            "nodes": {"0": NODE},
        },
        "put_diagnosis_expiry": {"expires_in_s": 60.0},
        "put_quarantine_rules": _RULES,
        "evaluate_quarantine": {
            "members": {f"gpu-{index}": {"pool": "train", "domains": ["leaf-1"]} for index in range(20)},
            "spares": {"train": 1},
        },
        "request_node_action": {"action": "cordon"},
        "put_remediation_case": {
            "node": NODE,
            "state": "quarantined",
            "stage": "draining",
            "since": MOMENT,
            "opened_at": MOMENT,
        },
        "put_health_event": {
            "outlet": "slurm",
            "event": {"id": "0197a1f03c1e7aa09d4352f1a4c1b2d3", "at": MOMENT, "state": "out-of-service", "node": NODE},
            "state": "requested",
        },
        "put_target": {
            "workload": "chat",
            "application": {
                "dashboard_url": "http://ray:8265",
                "application": "chat",
                "deployments": {"H100": "on-h100"},
            },
            "mode": "apply",
            "require_approval": True,
            "demand": {
                "sources": [
                    {
                        "kind": "prometheus",
                        "url": "http://prometheus:9090",
                        "profile": "vllm",
                        "parts": {"H100": {"model_name": "llama-8b"}},
                    }
                ]
            },
        },
        "put_target_status": {
            "phase": "awaiting_approval",
            "observed_at": MOMENT,
            "planned": {"H100": 3},
            "applied": {"H100": 2},
            "changes": [{"gpu": "H100", "deployment": "on-h100", "replicas_now": 2, "replicas_planned": 3}],
            "digest": DIGEST,
        },
        "approve_target": {"plan_id": None, "digest": DIGEST},
        "put_lease": {"holder": "controller-0", "lease_s": 15.0},
        "put_planning_loop": {"request": _PLAN, "targets": {"chat": "chat"}, "mode": "apply"},
        "put_planning_loop_status": {
            "phase": "applied",
            "observed_at": MOMENT,
            "window_end": MOMENT,
            "demand": {"chat": {"arrivals_rps": 10.2, "completions_rps": 10.1, "forecast_rps": 12.4}},
            "wanted": {"chat": {"H100": 3}},
            "drift": {"H100": {"tpot_ratio": 1.04, "ttft_ratio": None, "rate_scale": 0.97, "needs_refit": False}},
            "state": {"saving_windows": 2},
        },
        "set_planning_loop_plan": {
            "plan_id": "0197a1f0-3c1e-7aa0-9d43-52f1a4c1b2d3",  # the answer to `create_plan` names it
            "loop_version": 1,
            "expected_plan_ids": {"chat": None},
        },
        "put_freeze": {"frozen": True, "reason": "maintenance of row-1"},
    }


def add_examples(document: Json) -> None:
    """Add the examples to an OpenAPI document."""
    for methods in document["paths"].values():
        for operation in methods.values():
            if (body := operation.get("requestBody")) is None:
                continue
            operation_id = operation["operationId"]
            if operation_id in bodies():
                body["content"]["application/json"]["example"] = bodies()[operation_id]
            for parameter in operation.get("parameters", ()):
                if (name := NAMES.get(operation_id, {}).get(parameter["name"])) is not None:
                    parameter["example"] = name


def _measured() -> list[Json]:
    """Return rows of runs of a made-up engine: a fit needs a hundred."""
    return [
        {
            "id": f"run-{number}",
            "silicon_data_source": "source_file=made-up.csv; measured=2026-11-20T00:00:00Z",
            "backend": "vllm",
            "model_path": "meta-llama/Llama-3.1-8B",
            "system": system,
            "precision": "fp8",
            "mode": "agg",
            "isl": str(inputs),
            "osl": str(outputs),
            "batch_size": str(together),
            "tp_size": "1",
            "silicon_ttft_ms": f"{15 + 0.02 * inputs + 2 * together:g}",
            "silicon_tpot_ms": f"{5 + 0.05 * together * (1 + inputs / 4096):g}",
        }
        for number, (system, inputs, outputs, together) in enumerate(
            product(("h100_sxm", "h200_sxm"), (512, 1024, 2048, 4096), (128, 1024), (1, 2, 4, 8, 16, 32, 64))
        )
    ]


def _written(model: Frozen) -> Json:
    return model.model_dump(mode="json", exclude_defaults=True)
