"""CTranslate2: the C++ inference engine, float32, random weights of the same sizes."""

import tempfile

import numpy as np

from ..workload import SHAPES, Task, sentences

SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"]


def save_random_model(shape, folder):
    """Write an encoder-decoder of this shape in CTranslate2's format."""
    import ctranslate2

    spec = ctranslate2.specs.TransformerSpec.from_config(
        shape.num_layers, shape.num_heads, pre_norm=False
    )
    hidden, inner = shape.hidden_dim, shape.intermediate_dim
    generator = np.random.default_rng(0)

    def fill(linear, inputs, outputs):
        scale = np.sqrt(2 / (inputs + outputs))
        linear.weight = generator.normal(0, scale, (outputs, inputs)).astype("float32")
        linear.bias = np.zeros(outputs, "float32")

    def fill_norm(norm):
        norm.gamma, norm.beta = np.ones(hidden, "float32"), np.zeros(hidden, "float32")

    def fill_feed_forward(feed_forward):
        fill(feed_forward.linear_0, hidden, inner)
        fill(feed_forward.linear_1, inner, hidden)
        fill_norm(feed_forward.layer_norm)

    def fill_attention(attention):
        fused = [3] if len(attention.linear) == 2 else [1, 2]
        for linear, parts in zip(attention.linear, [*fused, 1]):
            fill(linear, hidden, parts * hidden)
        fill_norm(attention.layer_norm)

    embedding = generator.normal(0, hidden**-0.5, (shape.vocabulary_size, hidden))
    embedding = embedding.astype("float32")
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for layer in spec.encoder.layer:
        fill_attention(layer.self_attention)
        fill_feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        fill_attention(layer.self_attention)
        fill_attention(layer.attention)
        fill_feed_forward(layer.ffn)
    words = [str(index) for index in range(len(SPECIAL_TOKENS), shape.vocabulary_size)]
    spec.register_source_vocabulary(SPECIAL_TOKENS + words)
    spec.register_target_vocabulary(SPECIAL_TOKENS + words)
    spec.validate()
    spec.save(folder)


def decoding(size, batch, source_length, new_tokens, beams, threads, workers=1):
    """`translate_batch`, which computes with `workers` replicas of `threads` threads each."""
    import ctranslate2

    shape = SHAPES[size]
    folder = tempfile.TemporaryDirectory()
    save_random_model(shape, folder.name)
    how = {"compute_type": "float32", "intra_threads": threads, "inter_threads": workers}
    translator = ctranslate2.Translator(folder.name, device="cpu", **how)
    ids = sentences(batch, source_length, shape.vocabulary_size)
    words = [[str(token) for token in sentence] for sentence in ids]

    def decode():
        return translator.translate_batch(
            words,
            beam_size=beams,
            min_decoding_length=new_tokens,
            max_decoding_length=new_tokens,
            # Replicas share a batch only if it is cut.
            max_batch_size=-(-batch // workers),
        )

    lengths = {len(result.hypotheses[0]) for result in decode()}
    if lengths != {new_tokens}:
        raise RuntimeError(f"it decoded {lengths} tokens instead of {new_tokens}")
    return Task(call=decode, units=batch * new_tokens)
