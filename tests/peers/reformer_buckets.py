"""Outputs of a Reformer of transformers whose hash buckets are given:

    python reformer_buckets.py RESULTS.npz

A file has the weights, the token ids, the buckets (layer, rounds, position) and the outputs of each
case, and the options of its configuration.
"""

import json
import sys

import numpy as np
import torch
from transformers import ReformerConfig, ReformerModelWithLMHead

T, HEADS, BUCKETS = 30, 3, 4
OPTIONS = {
    **{"vocab_size": 29, "hidden_size": 12, "num_attention_heads": HEADS, "is_decoder": True},
    **{"attention_head_size": 5, "feed_forward_size": 17, "max_position_embeddings": 35},
    **{"axial_pos_shape": [5, 7], "axial_pos_embds_dim": [5, 7], "num_buckets": BUCKETS},
    **{"attn_layers": ["lsh", "local", "lsh"], "local_attn_chunk_length": 2},
}
CASES = {
    "one round": {**OPTIONS, "lsh_attn_chunk_length": 5, "num_hashes": 1},
    "three rounds": {**OPTIONS, "lsh_attn_chunk_length": 6, "num_hashes": 3},
}


def results(options):
    """The weights, inputs, buckets and outputs of a case, by name."""
    random = np.random.RandomState(0)
    rounds = options["num_hashes"]
    model = ReformerModelWithLMHead(ReformerConfig(**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            value = 0.25 * random.standard_normal(parameter.shape) + (parameter.ndim == 1)
            parameter.copy_(torch.tensor(value))
    ids = random.randint(0, 29, (2, T))
    buckets = random.randint(0, BUCKETS, (3, rounds, T))
    for layer, own in zip(model.reformer.encoder.layers, buckets, strict=True):
        numbered = own + BUCKETS * np.arange(rounds)[:, None]  # those of later rounds are higher
        given = torch.tensor(numbered.reshape(-1)).expand(2, HEADS, -1)
        layer.attention.self_attention._hash_vectors = lambda *_, given=given: given
    with torch.no_grad():
        # A token without another key has logits of -1e5 in all rounds. In float32 the weights of
        # three rounds then sum to 0.997.
        outputs = model.double()(torch.tensor(ids)).logits.numpy()
    weights = {f"weights/{name}": x.float().numpy() for name, x in model.state_dict().items()}
    config = json.dumps(model.config.to_dict())
    return {"ids": ids, "buckets": buckets, "outputs": outputs, "config": config, **weights}


if __name__ == "__main__":
    found = {case: results(options) for case, options in CASES.items()}
    np.savez(sys.argv[1], **{f"{c}/{name}": x for c, r in found.items() for name, x in r.items()})
