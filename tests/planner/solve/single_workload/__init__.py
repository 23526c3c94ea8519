"""Tests of the fast path."""
