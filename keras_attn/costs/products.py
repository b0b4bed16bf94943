"""The multiply-adds of a call: of its products of matrices, forward and backward."""

import math
from typing import NamedTuple

from keras_attn.attention.inputs import AttentionInputs, Prepared
from keras_attn.attention.linear import linear_products
from keras_attn.attention.plans import TileCount, resize
from keras_attn.costs.calls import own_kernels
from keras_attn.layers import MultiHeadAttention
from keras_attn.layers.multi_head_attention import choose
from keras_attn.patterns.causal import make_causal


class Products(NamedTuple):
    """Multiply-adds of a call, forward and backward."""

    forward: int = 0
    backward: int = 0

    def __add__(self, other):
        return Products(*(x + y for x, y in zip(self, other, strict=True)))


def products_of(call):
    """Return the `Products` of a `Call`, once."""
    layer = call.layer
    if isinstance(layer, MultiHeadAttention):
        own = _of_attention(call)
    elif hasattr(layer, "call_products"):
        own = _of_layer(call)
    else:
        own = Products()
        for kernel in own_kernels(layer):
            products = _of_kernel(layer, kernel, call.output)
            gradients = int(kernel.trainable) + bool(call.needs_gradient)
            own += Products(products, products * gradients)
    backward = own.backward if call.has_gradient else 0
    return Products(own.forward, backward + call.recomputations * own.forward)


def _of_kernel(layer, kernel, output):
    """Return the products with a kernel whose last axes are the last of the output."""
    axes = 1
    if hasattr(layer, "equation"):  # an `EinsumDense`
        inputs, result = layer.equation.replace("...", "").split("->")
        axes = len(set(inputs.split(",")[1]) & set(result))
    return math.prod(output.shape[: len(output.shape) - axes]) * math.prod(kernel.shape)


def _of_layer(call):
    """Return the `Products` of a layer that counts itself.

    One gradient is by its kernels, the other by what they multiply: the input, or what the layer
    itself has computed or looked up.
    """
    layer, shape = call.layer, tuple(call.output.shape)
    shapes = {k: tuple(x.shape) for k, x in call.arguments.items() if hasattr(x, "shape")}
    products, hidden = layer.call_products(shape, **shapes), 0
    if hasattr(layer, "hidden_products"):
        hidden = layer.hidden_products(shape, **shapes)
    backward = hidden + (products - hidden) * bool(call.needs_gradient)
    backward += products * int(layer.trainable)
    if getattr(layer, "chunks", 1) > 1:  # computed chunk by chunk, and again for the gradient
        backward += products
    return Products(products, backward)


def attention_inputs(call):
    """Return the `Prepared` of a call of an attention layer, with symbolic inputs."""
    layer, arguments = call.layer, call.arguments
    query, value = arguments["query"], call.value
    (batch, length, _), num_keys = query.shape, value.shape[1]
    heads = batch, layer.num_heads

    def symbolic(length, width):
        return type(query)((*heads, length, width), query.dtype)

    inputs = AttentionInputs(
        symbolic(length, layer.key_dim),
        symbolic(num_keys, layer.key_dim),
        symbolic(num_keys, layer.value_dim),
        query_positions=None,
        key_positions=None,
        score=layer.score,
        attention_mask=arguments.get("attention_mask"),
        tile_sizes=layer.tile_sizes,
    )
    pattern = layer.pattern
    if arguments.get("use_causal_mask"):
        pattern = make_causal(pattern)
    positions = arguments.get("query_positions"), arguments.get("key_positions")
    return choose(layer, Prepared(inputs, pattern, all(x is None for x in positions)))


def attention_tiles(prepared):
    """Return the `TileCount`s of an attention; the whole matrix is one for each row and head."""
    inputs = prepared.inputs
    if prepared.implementation == "blockwise":
        return prepared.pattern.plan.tiles(inputs)
    batch, num_heads, length, _ = inputs.query.shape
    num_keys = inputs.key.shape[2]
    number = batch * num_heads
    return [TileCount(number, number, length, num_keys, False, length + num_keys)]


def _of_attention(call):
    projections, updates = _of_projections(call)
    own = Products(projections.forward + updates, projections.backward + 2 * updates)
    own += Products(math.prod(searched_keys(call)) * call.layer.key_dim, 0)
    prepared = attention_inputs(call)
    inputs, score = prepared.inputs, prepared.inputs.score
    if prepared.implementation == "linear":
        products = linear_products(inputs, prepared.pattern)
        return own + Products(products, 2 * products)
    (_, num_heads, _, head_dim), width = inputs.query.shape, inputs.value.shape[3]
    if prepared.implementation == "blockwise" or not prepared.pattern.is_of_positions:
        own += Products(*prepared.pattern.plan.extra_products(inputs))
    counts = attention_tiles(prepared)
    if first := _num_first(call):
        first = prepared.replace(inputs=resize(inputs, length=first), implementation="dense")
        counts = counts + attention_tiles(first)
    for tiles in counts:
        size, has_table = (tiles.length, tiles.num_keys), tiles.num_distances is not None
        products = score.products_of_tile(*size, head_dim, has_table) + math.prod(size) * width
        pairs = tiles.number * products
        # The sinusoids of a table have no gradient.
        table = score.products_of_table(tiles.num_distances or 0, num_heads, head_dim)
        own += Products(pairs + table, (2 + tiles.is_loop) * pairs + table)
    return own


def searched_keys(call):
    """Return the shape (B, N, T, M) of the logits by which a `KNNAttention` looks keys up."""
    memory = call.arguments.get("memory")
    if memory is None:
        return (0,)
    batch, length, _ = call.arguments["query"].shape
    return batch, call.layer.num_heads, length, memory.shape[2]


def _num_first(call):
    """Return how many queries of a row a `GlobalAttention` computes a second time."""
    return min(getattr(call.layer, "num_global", 0), call.arguments["query"].shape[1])


def _of_projections(call):
    """Return the `Products` with the kernels of an attention layer, and with low-rank updates."""
    layer, arguments = call.layer, call.arguments
    query, value = arguments["query"], call.value
    key = value if arguments.get("key") is None else arguments["key"]
    value_source = "query" if arguments.get("value") is None else "value"
    key_source = value_source if arguments.get("key") is None else "key"
    queries, keys = (math.prod(x.shape[:2]) for x in (query, value))
    first = _num_first(call)
    # The argument that each kernel multiplies, and its rows; None for what the layer has computed.
    rows = {
        "query": [("query", queries)],
        "gate": [("query", queries)],
        "output": [(None, queries)],
    }
    rows |= {"value": [(value_source, keys)], "key": [(key_source, keys)]}
    rows["global_query"] = [("query", query.shape[0] * first)]
    rows["global_value"], rows["global_key"] = (
        [(source, keys if first else 0)] for source in (value_source, key_source)
    )
    if layer.shares_query and key is not query:
        rows["query"].append((key_source, keys))
    total, updates = Products(), 0
    for name in layer.kernel_names():
        kernel = getattr(layer, f"{name}_kernel")
        for source, count in rows[name]:
            products = count * math.prod(kernel.shape)
            by_input = source is None or source in call.needs_gradient
            total += Products(products, products * (int(kernel.trainable) + by_input))
        if name in layer.updates:
            a, b = layer.update_weights(name)
            updates += math.prod(a.shape) * math.prod(b.shape[1:])
    return total, updates
