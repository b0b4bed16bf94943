"""Tutorials: each file is a program, and can be made into a notebook."""
