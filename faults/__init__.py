"""Observations in; evidence, verdicts and isolation decisions out."""
