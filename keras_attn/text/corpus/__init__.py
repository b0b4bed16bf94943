"""A corpus in files: its manifest, its writer, and its token ids as one array."""
