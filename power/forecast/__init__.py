"""Forecasts of a row's power: the next seconds (`RowForecast`) and the next day (`next_day`), both with quantiles."""

from power.forecast.day_ahead import DayForecast, next_day
from power.forecast.history import Readings, Steps, read_power
from power.forecast.short_term import RowForecast

__all__ = ["DayForecast", "Readings", "RowForecast", "Steps", "next_day", "read_power"]
