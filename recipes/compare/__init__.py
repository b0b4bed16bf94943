"""One task, one budget, every value of an axis."""
