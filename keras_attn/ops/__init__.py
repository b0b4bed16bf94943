"""Tensor helpers that know nothing of attention: shapes, random numbers, sorting, checks."""
