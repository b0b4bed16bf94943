"""Exports of a model in processes of their own, timed side by side."""
