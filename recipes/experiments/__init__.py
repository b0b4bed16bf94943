"""Experiments of minutes: one question each, every value with several seeds, and a card."""
