"""Tests of code that the commands share."""
