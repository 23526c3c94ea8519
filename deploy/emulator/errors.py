"""Errors of emulated workers and of the demo.

EmulatorError
├── TooLongError     a request that does not fit even into an empty cache
├── InvalidRequestError      a request that is not valid
└── SandboxError       the Ray cluster does not start, or must not be used
"""

from fleet.errors import FleetwrightError


class EmulatorError(FleetwrightError):
    """An error of the emulator."""


class TooLongError(EmulatorError):
    """The request could never end."""


class InvalidRequestError(EmulatorError):
    """The request is invalid; the message names the field and the allowed values."""


class SandboxError(EmulatorError):
    """The sandbox cannot run; the message has the reason."""
