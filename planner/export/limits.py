"""What several dialects do not express; each dialect lists its own beside them."""

from typing import Final

LONG_REQUESTS: Final = "Requests longer than the plan's largest size: the engine refuses them."
WIDE_ATTENTION: Final = "With vLLM, options with data-parallel attention over several nodes: export them for SGLang."
WEIGHTS: Final = "Routing weights by request size: the ConfigMap NAME-routing has them for a router that can use them."
OF_MANIFESTS: Final = (
    "Clocks and power limits: the annotation fleetwright.io/clock has the clock, which an agent must set.",
    "The network between prefill and decode pods (RDMA devices and annotations).",
    "CPU, memory, model cache and access tokens of the pods: add those of your cluster.",
    LONG_REQUESTS,
    WIDE_ATTENTION,
)
