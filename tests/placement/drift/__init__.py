"""Forecasts of loads."""
