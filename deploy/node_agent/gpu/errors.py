"""Errors of a driver or a BMC.

GpuError                  also an OSError, as `Device` raises
├── NoPermissionError     this process may read, and not write
├── NotSupportedError     this GPU does not support the call
├── OutOfRangeError       the value is out of the GPU's range
├── GpuLostError          this GPU does not respond; others may
└── DriverGoneError       no GPU responds: no library, no driver, no BMC, or an invalid response
"""

from deploy.common.errors import ActuationError


class GpuError(ActuationError, OSError):
    """An error of a GPU's driver."""


class NoPermissionError(GpuError):
    """This process may read, and not write."""


class NotSupportedError(GpuError):
    """This GPU does not support the call."""


class OutOfRangeError(GpuError):
    """This GPU does not take this value."""


class GpuLostError(GpuError):
    """This GPU does not respond."""


class DriverGoneError(GpuError):
    """No GPU responds."""
