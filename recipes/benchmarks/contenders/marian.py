"""Hugging Face transformers: `MarianMTModel.generate`, random weights of the same sizes."""

from ...common.machine import cores
from ..workload import SHAPES, Task, sentences


def decoding(size, batch, source_length, new_tokens, beams, threads=None):
    """`generate` with its key-value cache, greedy or beam search, by all cores or some threads."""
    import torch
    import transformers

    torch.set_num_threads(threads or cores())
    torch.manual_seed(0)
    shape = SHAPES[size]
    layers = {"layers": shape.num_layers, "attention_heads": shape.num_heads}
    layers["ffn_dim"] = shape.intermediate_dim
    config = transformers.MarianConfig(
        vocab_size=shape.vocabulary_size,
        d_model=shape.hidden_dim,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        activation_function="relu",
        scale_embedding=True,
        **{
            f"{side}_{key}": value
            for side in ("encoder", "decoder")
            for key, value in layers.items()
        },
    )
    model = transformers.MarianMTModel(config).eval()
    ids = torch.tensor(sentences(batch, source_length, shape.vocabulary_size)).long()
    mask = torch.ones_like(ids)

    def decode():
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=mask,
                num_beams=beams,
                do_sample=False,
                min_new_tokens=new_tokens,
                max_new_tokens=new_tokens,
            )

    length = decode().shape[1] - 1  # The first token is the start token.
    if length != new_tokens:
        raise RuntimeError(f"it decoded {length} tokens instead of {new_tokens}")
    return Task(call=decode, units=batch * new_tokens)
