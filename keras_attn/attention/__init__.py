"""Computation of attention: inputs, positions, masks, softmax and one file per sparse algorithm."""
