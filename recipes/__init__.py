"""Recipes: one folder per task, each a program that trains, evaluates, exports and reports."""
