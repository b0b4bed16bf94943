"""Helpers that know nothing of attention: shapes, random numbers, sorting, checks, base classes."""
