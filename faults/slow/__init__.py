"""Slow wires and slow ranks of a live job, and what only looks like them.  docs/faults/slow.md

detector = SlowDetector(job)
detector.see(observation)          # in the order in which they became known
verdicts = detector.judge(now_s)   # as often as liked
"""

from faults.slow.detector import SlowDetector
from faults.slow.settings import SlowSettings

__all__ = ["SlowDetector", "SlowSettings"]
