"""Timed calls: one file per library, one function per task.

A function imports its library inside itself, so that a missing one is skipped and no
worker pays for the others, and returns a `Task`.
"""
