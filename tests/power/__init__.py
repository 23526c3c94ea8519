"""Tests of the power package."""
