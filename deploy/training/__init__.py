"""Training runs of Ray Train v2: told of, watched, resized.  docs/healing.md"""
