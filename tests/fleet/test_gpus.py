"""The GPU catalogue: shipped rows, names and aliases, and refusals."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.documents import parse_document, read_model, validation_problems
from fleet.errors import DocumentError, UnknownNameError
from fleet.gpus import GpuCatalogue, GpuSpec, Precision, UnstatedFigureError, builtin_gpus

MIB = 1024 * 1024
SHIPPED = builtin_gpus().gpus
each_gpu = pytest.mark.parametrize("gpu", SHIPPED, ids=lambda gpu: gpu.name)


def row(**changes: Any) -> dict[str, Any]:
    """A valid row with changes.  A value of ... removes the field."""
    base: dict[str, Any] = {
        "name": "X1",
        "vendor": "acme",
        "architecture": "one",
        "form_factor": "pcie",
        "memory_gb": 80,
        "bandwidth_gb_per_s": 2000,
        "dense_tflops": {"bf16": 300},
        "tdp_w": 400,
        "link": "nvlink4",
        "link_gb_per_s": 450,
        "link_domain_gpus": 8,
        "pcie_gb_per_s": 64,
        "source": "X1 datasheet",
        "date": "2026-11-01",
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


class TestShipped:
    @pytest.mark.parametrize(
        "name",
        [
            *("T4", "L4", "A10G", "L40S", "A100-40GB-SXM", "A100-40GB-PCIe", "A100-80GB-SXM", "A100-80GB-PCIe"),
            *("H100-PCIe", "H100-SXM", "H100-NVL", "H200", "H20", "B200", "B300", "GB200", "GB300"),
            *("RTX-PRO-6000", "RTX-4090", "MI300X", "MI325X"),
            *("A10", "A30", "A40", "L40", "RTX-A6000", "RTX-6000-Ada", "RTX-5090", "V100", "V100-32GB", "MI250X"),
            *("MI355X", "GH200", "GH200-144GB", "H20-141GB", "Gaudi-3", "TPU-v5e", "TPU-v6e", "Trainium2"),
        ],
    )
    def test_a_gpu_is_in_the_catalogue(self, name: str) -> None:
        assert builtin_gpus().get(name) in SHIPPED

    @each_gpu
    def test_a_row_has_a_source_and_a_date(self, gpu: GpuSpec) -> None:
        assert len(gpu.source) > 20
        assert gpu.date.year >= 2026

    @pytest.mark.parametrize(
        ("label", "name"),
        [
            ("H100", "H100-SXM"),
            ("h100-sxm", "H100-SXM"),
            ("NVIDIA H100 80GB HBM3", "H100-SXM"),  # NVML
            ("NVIDIA-H100-80GB-HBM3", "H100-SXM"),  # GPU feature discovery
            ("nvidia-h100-80gb", "H100-SXM"),  # Google Cloud
            ("NVIDIA-H100-NVL", "H100-NVL"),
            ("NVIDIA-H100-PCIe", "H100-PCIe"),
            ("NVIDIA-A100-SXM4-80GB", "A100-80GB-SXM"),
            ("NVIDIA-A100-80GB-PCIe", "A100-80GB-PCIe"),
            ("NVIDIA-A100-PCIE-40GB", "A100-40GB-PCIe"),
            ("A100", "A100-40GB-SXM"),  # may be either size: the smaller one is the safe reading
            ("A100-80G", "A100-80GB-SXM"),  # Ray
            ("nvidia-tesla-a100", "A100-40GB-SXM"),
            ("Tesla-T4", "T4"),
            ("NVIDIA-B300-SXM6-AC", "B300"),
            ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000"),
            ("NVIDIA-GeForce-RTX-4090", "RTX-4090"),
            ("AMD_Instinct_MI300X_OAM", "MI300X"),  # AMD's node labeller
            ("AMD-Instinct-MI325X-OAM", "MI325X"),  # Ray
            ("NVIDIA-A40", "A40"),
            ("NVIDIA-RTX-6000-Ada-Generation", "RTX-6000-Ada"),
            ("NVIDIA GH200 480GB", "GH200-96GB"),  # the 480 GB are the CPU's
            ("NVIDIA H20-3e", "H20-141GB"),
            ("Tesla-V100-SXM2-32GB", "V100-32GB-SXM"),
            ("V100", "V100-16GB-SXM"),  # may be either size, as A100
            ("Intel-GAUDI3", "Gaudi-3"),  # Ray
            ("TPU-V6E", "TPU-v6e"),  # Ray
        ],
    )
    def test_a_gpu_is_found_by_the_labels_of_drivers_and_schedulers(self, label: str, name: str) -> None:
        assert builtin_gpus().get(label).name == name

    @each_gpu
    def test_a_gpu_is_found_by_its_ray_label(self, gpu: GpuSpec) -> None:
        if gpu.name == "Trainium2":  # Ray counts its cores, not chips
            assert gpu.ray_accelerator is None
            return
        assert gpu.ray_accelerator is not None
        assert builtin_gpus().get(gpu.ray_accelerator).ray_accelerator == gpu.ray_accelerator

    @pytest.mark.parametrize("label", ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "Tesla-T4-SHARED", "NVIDIA-H200-NVL"])
    def test_a_gpu_partition_or_another_product_is_unknown(self, label: str) -> None:
        with pytest.raises(UnknownNameError):
            builtin_gpus().get(label)

    @pytest.mark.parametrize(
        ("name", "precision", "printed_with_sparsity"),
        [
            ("L4", "bf16", 242),
            ("L40S", "fp8", 1466),
            ("A100-80GB-SXM", "bf16", 624),
            ("A100-40GB-PCIe", "int8", 1248),
            ("H100-PCIe", "bf16", 1513),
            ("H100-SXM", "bf16", 1979),
            ("H100-SXM", "fp8", 3958),
            ("H100-NVL", "tf32", 835),
            ("H200", "int8", 3958),
            ("B200", "fp4", 144_000 / 8),  # the HGX data sheet states eight GPUs
            ("B200", "bf16", 36_000 / 8),
            ("B300", "fp8", 72_000 / 8),
            ("GB200", "fp4", 20_000),
            ("GB300", "bf16", 5_000),
            ("MI300X", "fp8", 5229.8),
            ("A40", "bf16", 299.4),
            ("A30", "int8", 660),
            ("L40", "fp8", 724),
            ("RTX-A6000", "bf16", 309.6),
            ("RTX-6000-Ada", "fp8", 1457),
            ("RTX-5090", "fp4", 3352),
            ("GH200", "bf16", 1979),
        ],
    )
    def test_tflops_are_dense(self, name: str, precision: Precision, printed_with_sparsity: float) -> None:
        assert builtin_gpus().get(name).dense_tflops[precision] == pytest.approx(printed_with_sparsity / 2)

    @each_gpu
    def test_half_the_bits_give_twice_the_rate(self, gpu: GpuSpec) -> None:
        rates = gpu.dense_tflops
        if "fp8" in rates:
            times = 1 if gpu.name == "Gaudi-3" else 2  # its matrix engines are no faster in 8 bit
            assert rates["fp8"] == pytest.approx(times * rates["bf16"], rel=0.03)
        if "fp4" in rates:
            assert rates["fp4"] >= 2 * rates["fp8"]

    @pytest.mark.parametrize(
        ("name", "both_directions_gb_per_s", "domain_gpus"),
        [
            ("A100-80GB-SXM", 600, 8),
            ("H100-SXM", 900, 8),
            ("H100-NVL", 600, 2),
            ("GB200", 1800, 72),
            ("MI300X", 896, 8),
            ("V100", 300, 8),
            ("MI355X", 1075.2, 8),
            ("Gaudi-3", 1050, 8),
            ("TPU-v6e", 800, 256),
        ],
    )
    def test_link_rates_are_per_direction(self, name: str, both_directions_gb_per_s: float, domain_gpus: int) -> None:
        gpu = builtin_gpus().get(name)
        assert (gpu.link_gb_per_s * 2, gpu.link_domain_gpus) == (both_directions_gb_per_s, domain_gpus)

    @each_gpu
    def test_a_gpu_without_a_link_of_its_own_has_no_scale_up_domain(self, gpu: GpuSpec) -> None:
        assert (gpu.link == "pcie") == (gpu.link_domain_gpus == 1)

    @each_gpu
    def test_memory_is_at_least_the_datasheets_decimal_figure(self, gpu: GpuSpec) -> None:
        assert gpu.memory_bytes >= gpu.memory_gb * 1e9

    def test_writing_and_reading_gives_the_same_catalogue(self) -> None:
        assert GpuCatalogue.model_validate_json(builtin_gpus().model_dump_json()) == builtin_gpus()

    def test_the_shipped_catalogue_is_read_once(self) -> None:
        assert builtin_gpus() is builtin_gpus()


class TestMemory:
    def test_memory_is_the_figure_of_the_driver(self) -> None:
        assert GpuSpec.model_validate(row(memory_visible_mib=81559)).memory_bytes == 81559 * MIB

    def test_without_a_drivers_figure_memory_is_that_of_the_datasheet(self) -> None:
        assert GpuSpec.model_validate(row()).memory_bytes == 80_000_000_000


class TestRefuses:
    @pytest.mark.parametrize(
        ("changes", "path", "message"),
        [
            ({"cap_min_w": 500, "cap_max_w": 450}, "cap_min_w", "must be at most cap_max_w (450), got 500"),
            ({"cap_min_w": 401}, "cap_min_w", "must be at most tdp_w (400), got 401"),
            ({"cap_max_w": 4000}, "cap_max_w", "must be at most 2 x tdp_w (800), got 4000"),
            ({"clock_min_mhz": 2000, "clock_max_mhz": 1980}, "clock_min_mhz", "must be at most clock_max_mhz (1980)"),
            ({"memory_visible_mib": 85_000_000_000}, "memory_visible_mib", "(38147) to all of it in GiB (81920)"),
            ({"link": "pcie"}, "link_gb_per_s", "must equal pcie_gb_per_s (64) when link is pcie"),
            ({"tdp_w": 0}, "tdp_w", "greater than 0"),
            ({"tdp_w": "700"}, "tdp_w", "expected a number, got '700'"),
            ({"memory_gb": float("inf")}, "memory_gb", "finite"),
            ({"dense_tflops": {"bf17": 1}}, "dense_tflops", "'fp32', 'tf32', 'bf16'"),
            ({"dense_tflops": {}}, "dense_tflops", "at least one"),
            ({"link": "token-ring"}, "link", "'nvlink4'"),
            ({"link_domain_gpus": 0}, "link_domain_gpus", "greater than or equal to 1"),
            ({"source": ...}, "source", "is required"),
            ({"date": "last year"}, "date", "date"),
            ({"memory_gib": 80}, "memory_gib", "is not a known field"),
        ],
        ids=lambda value: value if isinstance(value, str) else None,
    )
    def test_an_invalid_row_is_refused_with_field_and_range(
        self, changes: Mapping[str, Any], path: str, message: str
    ) -> None:
        with pytest.raises(ValidationError) as raised:
            GpuCatalogue.model_validate({"gpus": [row(**changes)]})
        [(found, text)] = validation_problems(raised.value)
        assert found[:3] == ("gpus", 0, path)
        assert message in text

    def test_reading_an_unstated_figure_raises_an_error_with_its_name(self) -> None:
        chip = builtin_gpus().get("TPU-v5e")
        assert (chip.tdp_w, chip.pcie_gb_per_s) == (None, None)
        with pytest.raises(UnstatedFigureError, match="no source states tdp_w of GPU 'TPU-v5e'"):
            _ = chip.rated_w
        with pytest.raises(UnstatedFigureError, match="no source states pcie_gb_per_s of GPU 'TPU-v5e'"):
            _ = chip.host_link_gb_per_s

    def test_a_change_in_place_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            builtin_gpus().get("T4").tdp_w = 75  # type: ignore[misc]


class TestUserFile:
    MINE = """
gpus:
  - name: T4  # ours runs cooler
    {common}
    tdp_w: 65
  - name: Gaudi-9
    aliases: [HL-999]
    {common}
    tdp_w: 900
"""
    COMMON = """vendor: intel
    architecture: nine
    form_factor: oam
    memory_gb: 16
    bandwidth_gb_per_s: 3700
    dense_tflops: {bf16: 1800}
    link: pcie
    link_gb_per_s: 64
    link_domain_gpus: 1
    pcie_gb_per_s: 64
    source: our lab
    date: 2026-11-01"""

    def read(self, text: str) -> GpuCatalogue:
        return read_model(parse_document(text.replace("{common}", self.COMMON), name="mine.yaml"), GpuCatalogue)

    def test_a_users_file_overrides_and_extends_the_catalogue(self) -> None:
        merged = builtin_gpus().overlaid(self.read(self.MINE))
        assert merged.get("T4").tdp_w == 65
        assert merged.get("hl-999").name == "Gaudi-9"
        assert len(merged.gpus) == len(SHIPPED) + 1
        assert merged.get("L4") == builtin_gpus().get("L4")

    def test_an_override_replaces_the_whole_row(self) -> None:
        merged = builtin_gpus().overlaid(self.read(self.MINE))
        assert merged.get("T4").cap_min_w is None
        with pytest.raises(UnknownNameError):
            merged.get("Tesla T4")

    def test_an_error_in_a_users_file_is_reported_with_its_line(self) -> None:
        with pytest.raises(DocumentError, match=r"line 16: gpus\[0\]\.tdp_w: input should be greater than 0, got -65"):
            self.read(self.MINE.replace("65", "-65"))
