"""Forecasts of a row's power: the next seconds (`RowForecast`) and the next day (`next_day`), both with quantiles."""

from power.forecast.days import DayForecast, next_day
from power.forecast.history import Readings, Steps, read_power
from power.forecast.row import RowForecast

__all__ = ["DayForecast", "Readings", "RowForecast", "Steps", "next_day", "read_power"]
