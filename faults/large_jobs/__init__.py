"""The slow detector of large jobs, or of any whose leaves are known: the joint fit and the straggler's sums, fed live.

docs/faults/localisation.md and docs/faults/stragglers.md say what they do with a window; here windows are made.
"""

from faults.large_jobs.detector import LargeJobDetector
from faults.large_jobs.settings import JobwideSettings

__all__ = ["JobwideDetector", "JobwideSettings"]
