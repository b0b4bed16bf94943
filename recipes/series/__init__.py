"""Forecasts and classes of the user's time series."""
