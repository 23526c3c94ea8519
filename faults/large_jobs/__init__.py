"""The slow detector of large jobs, and of any job with known leaves: makes windows from the stream for the joint fit
and the straggler detector.

docs/explanation/faults/localisation.md and stragglers.md describe the detectors.
"""

from faults.large_jobs.detector import LargeJobDetector
from faults.large_jobs.settings import LargeJobSettings

__all__ = ["LargeJobDetector", "LargeJobSettings"]
