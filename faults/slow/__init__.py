"""Finds slow networks and slow ranks of a live job, and separates their look-alikes.

    detector = SlowDetector(job)
    detector.observe(observation)        # in the order in which they became known
    diagnoses = detector.evaluate(now_s)

Formulas: docs/explanation/faults/slow.md
"""

from faults.slow.detector import SlowDetector
from faults.slow.settings import SlowSettings

__all__ = ["SlowDetector", "SlowSettings"]
