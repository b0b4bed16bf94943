"""The splits of data that a recipe trains, validates and tests on."""

SPLITS = ("train", "valid", "test")
