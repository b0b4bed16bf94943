"""Copy, reverse, add, and tell even from odd: tasks that ask how far a model computes."""
