"""A plan put to the proof: its requests replayed, headroom found, spare replicas let go (docs/replay.md, section 7).

`planner.validation.model.proving.Prover` is the entry.
"""
