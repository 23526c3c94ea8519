"""The marks that health monitors and node autoscalers set on a Kubernetes node.

Node conditions have no common polarity, so only known types count.
"""

from collections.abc import Mapping
from typing import Any, Final

SENTINEL_LABEL: Final = "dgxc.nvidia.com/nvsentinel-state"
SENTINEL_TAINTS: Final = frozenset(
    (
        *("nvidia.com/gpu-xid-error", "nvidia.com/gpu-nvlink-error", "nvidia.com/syslog-xid-error"),
        *("nvidia.com/gpu-error", "nvsentinel.dgxc.nvidia.com/external-remediation"),
    )
)
AUTOSCALER_TAINTS: Final = frozenset(
    (
        "ToBeDeletedByClusterAutoscaler",
        *("karpenter.sh/disrupted", "karpenter.sh/disruption", "karpenter.sh/unregistered"),
    )
)
SENTINEL_CONDITIONS: Final = frozenset(
    (
        *("GpuMemWatch", "GpuThermalWatch", "GpuPcieWatch", "GpuPowerWatch", "GpuInforomWatch", "GpuSmWatch"),
        *("GpuNvlinkWatch", "GpuMcuWatch", "GpuPmuWatch", "GpuDriverWatch", "GpuCpusetWatch", "SysLogsXIDError"),
        *("SysLogsSXIDError", "SysLogsGPUFallenOff", "NVSwitchFatalError", "NVSwitchDown", "NVSwitchNonFatalError"),
        *("DCGMError", "CSPMaintenance", "SyslogError"),
    )
)
DETECTOR_CONDITIONS: Final = frozenset(
    (
        *("KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown", "CperHardwareErrorFatal", "DiskBadBlock"),
        *("CorruptDockerOverlay2", "ContainerRuntimeUnhealthy", "KubeletUnhealthy", "FrequentUnregisterNetDevice"),
        *("FrequentKubeletRestart", "FrequentDockerRestart", "FrequentContainerdRestart", "NTPProblem"),
        "KubeProxyUnhealthy",
    )
)
OWN_CONDITION: Final = "FleetwrightHealthy"  # False: quarantined by this product
NOT_READY_TAINTS: Final = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))

_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_KUBELET_TAINTS: Final = "node.kubernetes.io/"
_KEEPS_PODS_AWAY: Final = frozenset(("NoSchedule", "NoExecute"))
_HEALED: Final = "remediation-succeeded"


def is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions) and not (
        NOT_READY_TAINTS & _taints(node)
    )


def is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def unhealthy_mark(node: Mapping[str, Any]) -> str | None:
    """The first mark that takes the node out of use; None where no monitor or autoscaler has set one."""
    for key in sorted(_taints(node)):
        if key in SENTINEL_TAINTS | AUTOSCALER_TAINTS:
            return f"taint {key}"
        if key.startswith(_KUBELET_TAINTS) and key not in NOT_READY_TAINTS | {_CORDON_TAINT}:
            return f"taint {key}"
    state = (node["metadata"].get("labels") or {}).get(SENTINEL_LABEL)
    if state and state != _HEALED:
        return f"label {SENTINEL_LABEL}={state}"
    for each in (node.get("status") or {}).get("conditions") or ():
        if each["type"] in SENTINEL_CONDITIONS | DETECTOR_CONDITIONS and each["status"] == "True":
            return f"condition {each['type']}"
        if (each["type"], each["status"]) == (OWN_CONDITION, "False"):
            return f"condition {OWN_CONDITION}"
    return None


def _taints(node: Mapping[str, Any]) -> frozenset[str]:
    """The keys of the taints that keep pods away."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return frozenset(each["key"] for each in taints if each.get("effect") in _KEEPS_PODS_AWAY)
