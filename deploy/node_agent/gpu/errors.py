"""What a driver or a BMC answers when it says no.

GpuError                  an OSError too: whoever drives a device takes its refusals as such
├── NoPermissionError     this process may look, and not write
├── NotSupportedError     this GPU has no such thing
├── OutOfRangeError       the GPU has it, and not this value of it
├── GpuLostError          this GPU does not answer; others may
└── DriverGoneError       nobody answers: no library, no driver, no BMC, or an answer that makes no sense
"""

from deploy.common.errors import ActuationError


class GpuError(ActuationError, OSError):
    """A GPU's driver said no."""


class NoPermissionError(GpuError):
    """This process may look, and not write."""


class NotSupportedError(GpuError):
    """This GPU has no such thing."""


class OutOfRangeError(GpuError):
    """This GPU does not take this value."""


class GpuLostError(GpuError):
    """This GPU does not answer."""


class DriverGoneError(GpuError):
    """No GPU answers."""
