"""One builder a file: the model of one paper."""
