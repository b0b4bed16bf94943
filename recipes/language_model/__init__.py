"""Language models of characters or subwords, one per paper, on one text."""
