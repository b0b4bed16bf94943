"""Write tests/convert/golden_series: what chronos-forecasting computes for made-up series.

    python tests/convert/make_series_goldens.py

It needs torch and chronos-forecasting, and no Keras.
"""

import pathlib

import numpy as np
import torch
from chronos.chronos import ChronosConfig

FOLDER = pathlib.Path(__file__).with_name("golden_series")
# Lowest and highest center, number of tokens, number of special ones; the first are published.
BINS = (-15.0, 15.0, 4096, 2), (-3.25, 4.1, 47, 3)


def write_bins():
    """Write values at bounds of bins and beside them, of a known scale, and series of their own."""
    random, arrays = np.random.default_rng(0), {}
    for index, (low, high, num_tokens, num_special) in enumerate(BINS):
        config = ChronosConfig(
            **{"tokenizer_class": "MeanScaleUniformBins", "n_tokens": num_tokens},
            **{"tokenizer_kwargs": {"low_limit": low, "high_limit": high}},
            **{"n_special_tokens": num_special, "pad_token_id": 0, "eos_token_id": 1},
            **{"use_eos_token": True, "model_type": "seq2seq", "context_length": 64},
            **{"prediction_length": 8, "num_samples": 1, "temperature": 1, "top_k": 5, "top_p": 1},
        )
        tokenizer = config.create_tokenizer()
        bounds = tokenizer.boundaries.numpy()[1:-1]
        bounds = bounds[np.unique(np.linspace(0, len(bounds) - 1, 211).astype(int))]
        sides = [np.nextafter(bounds, np.float32(end)) for end in (-99, 99)]
        scaled = np.stack([*sides, bounds, np.float32(2.5) * bounds])
        ids, _, _ = tokenizer._input_transform(torch.tensor(scaled), torch.ones(len(scaled)))
        series = (random.normal(size=(5, 53)).cumsum(1) * 10.0 ** np.arange(-2, 3)[:, None]).astype(
            "float32"
        )
        series[0, :17], series[1, 20:31], series[2], series[3] = np.nan, np.nan, np.nan, 0.0
        own_ids, _, scale = tokenizer.context_input_transform(torch.tensor(series))
        paths = random.integers(0, num_tokens, (5, 3, 4))
        values = tokenizer.output_transform(torch.tensor(paths), scale)
        for name, array in {
            **{"scaled": scaled, "scaled_ids": ids, "series": series, "ids": own_ids},
            **{"scale": scale, "paths": paths, "values": values},
        }.items():
            arrays[f"{name}_{index}"] = np.asarray(array)
    np.savez_compressed(FOLDER / "bins.npz", bins=np.array(BINS), **arrays)


if __name__ == "__main__":
    write_bins()
