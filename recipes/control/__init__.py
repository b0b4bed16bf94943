"""Actors that must remember: gtrxl beside an LSTM, an ungated Transformer-XL and no memory."""
