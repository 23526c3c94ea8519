"""Fault detection for training jobs: from observations to evidence, diagnoses and quarantine decisions."""
