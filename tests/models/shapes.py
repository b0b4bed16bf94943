"""Shapes of the weights of models since 2019, from their sizes `s`, in no particular order."""


def sizes(s):
    d, n = s["hidden_dim"], s["num_heads"]
    return s["num_layers"], n, d, s["intermediate_dim"], s.get("key_dim") or d // n


def projections(d, n, size, shared=None):
    shared = shared or n
    return [(d, n, size), (d, shared, size), (d, shared, size), (n, size, d)]


def gated(d, f):
    return [(d, f), (d, f), (f, d)]


def experts(kernels, d, count):
    return [(d, count), *((count, *shape) for shape in kernels)]


def with_biases(d, n, key, value, context=None):
    """Return the shapes of an attention of width `d` to a `context` of another, by default `d`."""
    context = context or d
    kernels = [(d, n, key), (context, n, key), (context, n, value), (n, value, d)]
    return [*kernels, (n, key), (n, key), (n, value), (d,)]


def feed_forward(d, f):
    return [(d, f), (f,), (f, d), (d,)]


def decoder(s, feed_forward=gated, norms=2):
    """Return the shapes of a stack as Llama's, with its token table and its last norm."""
    num_layers, n, d, f, size = sizes(s)
    attention = projections(d, n, size, s.get("num_key_value_heads"))
    block = attention + feed_forward(d, f) + norms * [(d,)]
    return [(s["vocabulary_size"], d), *num_layers * block, (d,)]


def llama(s):
    return decoder(s) + ([] if s.get("tied") else [(s["hidden_dim"], s["vocabulary_size"])])


def mixtral(s):
    head = (s["hidden_dim"], s["vocabulary_size"])
    return [*decoder(s, lambda d, f: experts(gated(d, f), d, 8)), head]


def gemma(s):
    return decoder(s, norms=4)


def t5(s, feed_forward=None):
    def plain(d, f, index):
        return gated(d, f) if s.get("gated") else [(d, f), (f, d)]

    feed_forward = feed_forward or plain
    num_layers, n, d, f, size = sizes(s)
    attention, bias = projections(d, n, size), (32, n)
    shapes = [(s["vocabulary_size"], d), (d,), (d,)]
    for index in range(num_layers):
        feed = feed_forward(d, f, index)
        shapes += attention + feed + [bias, (d,), (d,)]
        shapes += 2 * attention + feed + [bias, (d,), (d,), (d,)]
    return shapes + ([] if s.get("tied", True) else [(d, s["vocabulary_size"])])


def chronos_bolt(s, levels=9, horizon=64, patch=16):
    d, f = s["hidden_dim"], s["intermediate_dim"]
    shapes = t5({**s, "vocabulary_size": 2})
    for inputs, outputs in (2 * patch, d), (d, levels * horizon):
        shapes += [(inputs, f), (f,), (f, outputs), (inputs, outputs), (outputs,), (outputs,)]
    return shapes


def switch_transformer(s):
    def feed_forward(d, f, index):
        kernels = gated(d, f) if s.get("gated", True) else [(d, f), (f, d)]
        return experts(kernels, d, s.get("num_experts", 128)) if index % 2 else kernels

    return t5(s, feed_forward)


def modern_bert(s):
    num_layers, n, d, f, size = sizes(s)
    block = projections(d, n, size) + gated(d, f) + 2 * [(d,)]
    # The first block has one norm less; embeddings, the end of the stack and the head have one.
    others = [(s["vocabulary_size"], d), *2 * [(d,)], (d, d), (d,), (s["vocabulary_size"],)]
    return num_layers * block[:-1] + (num_layers - 1) * [(d,)] + others


def vit(s, num_patches=14 * 14, num_classes=1000):
    num_layers, n, d, f, size = sizes(s)
    block = with_biases(d, n, size, size) + feed_forward(d, f) + 4 * [(d,)]
    embedding = [(16 * 16 * 3, d), (d,), (d,), (num_patches + 1, d)]
    return embedding + num_layers * block + 2 * [(d,)] + [(d, num_classes), (num_classes,)]


def decision_transformer(s, max_steps=1000):
    num_layers, n, d, f, size = sizes(s)
    embedding = [(1, d), (s["state_size"], d), (s["action_size"], d), (max_steps, d)]
    block = with_biases(d, n, size, size) + feed_forward(d, f) + 4 * [(d,)]
    head = [(d, s["action_size"]), (s["action_size"],)]
    return embedding + num_layers * block + 7 * [(d,)] + head


def bert(s, num_segments, max_length=4096):
    num_layers, n, d, f, size = sizes(s)
    block = with_biases(d, n, size, size) + feed_forward(d, f) + 4 * [(d,)]
    tables = [(s["vocabulary_size"], d), (max_length, d), (num_segments, d)]
    head = [(d, d), *3 * [(d,)], (s["vocabulary_size"],)]
    return tables + 2 * [(d,)] + num_layers * block + head


def longformer(s):
    return bert(s, 1)


def big_bird(s):
    return bert(s, 2)


def gpt_oss(s):
    num_layers, n, d, f, size = sizes(s)
    shared, count = s["num_key_value_heads"], s["num_experts"]
    biases = [(n, size), (shared, size), (shared, size), (d,), (n,)]
    kernels = [*gated(d, f), (f,), (f,), (d,)]
    block = projections(d, n, size, shared) + biases + experts(kernels, d, count)
    block += [(count,), (d,), (d,)]
    head = (d, s["vocabulary_size"])
    return [(s["vocabulary_size"], d), *num_layers * block, (d,), head]


def perceiver(s, max_length=2048):
    num_layers, n, d, f, key = sizes(s)
    c, value = s["latent_dim"], s["latent_dim"] // n
    read = with_biases(c, n, key, value, d) + feed_forward(c, f) + 4 * [(c,)] + 2 * [(d,)]
    block = with_biases(c, n, key, value) + feed_forward(c, f) + 4 * [(c,)]
    write = with_biases(d, n, key, d // n, c) + feed_forward(d, d) + 4 * [(d,)] + 2 * [(c,)]
    tables = [(s["vocabulary_size"], d), (max_length, d), (max_length, d), (s["num_latents"], c)]
    return tables + read + num_layers * block + write


SHAPES = {
    "gpt_oss": gpt_oss,
    "longformer": longformer,
    "big_bird": big_bird,
    "decision_transformer": decision_transformer,
    "perceiver": perceiver,
    "modern_bert": modern_bert,
    "vit": vit,
    "llama": llama,
    "mistral": llama,
    "mixtral": mixtral,
    "gemma": gemma,
    "t5": t5,
    "chronos_t5": t5,
    "chronos_bolt": chronos_bolt,
    "switch_transformer": switch_transformer,
}
