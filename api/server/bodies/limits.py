"""The limits of body checks, and the frames between the service and its helper process."""

import struct

REQUEST = struct.Struct("!HI")  # lengths of the model's name and of the body
ANSWER = struct.Struct("!I")
READY = b"ready\n"  # the first bytes of the helper

CHECK_CPU_S = 10.0
MEMORY_BYTES = 512 * 1024 * 1024  # for one body, above what the helper holds before
KEPT_BYTES = 128 * 1024 * 1024  # a helper that holds more after a check is replaced
OUT_OF_MEMORY = 3  # exit status
