"""Tests of placements for the nearest-copy rule."""
