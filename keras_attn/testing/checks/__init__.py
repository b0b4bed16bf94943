"""The checks, each a function of a subject that yields a sentence for each defect."""
