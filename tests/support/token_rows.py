"""Rows of ids that tokenizers give, without padding."""


def rows_of(ids, lengths):
    """Return padded ids as lists."""
    return [row[:length].tolist() for row, length in zip(ids.numpy(), lengths.numpy(), strict=True)]
