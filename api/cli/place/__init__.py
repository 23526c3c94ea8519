"""The `place` and `placements` commands: place MoE experts on GPUs and export engine files."""
