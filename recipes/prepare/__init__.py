"""Preparation of a corpus: texts in many files become token ids in files."""
