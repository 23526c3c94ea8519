"""What the caller of an export decides: engine, images, names of the cluster."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from fleet.documents import Frozen
from planner.engine_flags import ENGINE_VERSIONS, ServingEngine

Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Image = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^\S+$")]
LabelKey = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
    ),
]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]

# By engine and GPU vendor.  SGLang's images for AMD have a tag for each GPU type, so there is no default.
Images = Mapping[ServingEngine, Mapping[str, str]]
ENGINE_IMAGES: Final[Images] = {
    ServingEngine.VLLM: {
        "nvidia": f"vllm/vllm-openai:v{ENGINE_VERSIONS[ServingEngine.VLLM]}",
        "amd": f"vllm/vllm-openai-rocm:v{ENGINE_VERSIONS[ServingEngine.VLLM]}",
    },
    ServingEngine.SGLANG: {"nvidia": f"lmsysorg/sglang:v{ENGINE_VERSIONS[ServingEngine.SGLANG]}"},
}
COUNTS_ADDRESS: Final = "fleetwright-api.fleetwright.svc.cluster.local:8400"  # of the chart


class ExportSettings(Frozen):
    """How to write the files."""

    engine: ServingEngine = ServingEngine.VLLM
    image: Mapping[Literal["any", "nvidia", "amd"], Image] = Field(
        default_factory=dict,
        description="GPU vendor -> image, `any` for those not named; absent: as the engine or the peer publishes it.",
    )
    namespace: Namespace = "default"
    gpu_label: LabelKey | None = Field(
        default=None, description="Node label with the GPU type; absent: the label of the GPU vendor's operator."
    )
    gpu_value: Mapping[str, LabelValue] = Field(
        default_factory=dict, description="GPU of the plan -> value of that label."
    )
    weights: Mapping[str, str] = Field(default_factory=dict, description="Workload -> weights to load.")
    counts_address: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]+:[0-9]{1,5}$")] = Field(
        default=COUNTS_ADDRESS, description="host:port that answers AIBrix's queries for replica counts."
    )
