"""PyTorch Flight Recorder dumps of NCCL and gloo, JSON and pickle, as each rank's progress in each group.

Written by torch/csrc/distributed/c10d/FlightRecorder*.hpp; read with format versions 2.x.
"""

from faults.readers.flight.dump import Dump, parse_dump
from faults.readers.flight.progress import flights

__all__ = ["Dump", "flights", "parse_dump"]
