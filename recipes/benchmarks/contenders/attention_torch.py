"""PyTorch: exact attention and `flex_attention`, as its users call them on a CPU."""

from ...common.machine import cores
from ..workload import Task
from .attention_inputs import heads


def torch_task(function, arrays, gflop, backward=False, weights=()):
    """A `Task` that calls a function of tensors; the arguments are those of `graph_task`."""
    import torch

    torch.set_num_threads(cores())
    inputs = [torch.tensor(array, requires_grad=backward) for array in arrays]

    def forward():
        with torch.no_grad():
            return function(*inputs)

    def with_gradients():
        output = function(*inputs)
        return output, torch.autograd.grad(output, [*inputs, *weights], output.detach())

    return Task(call=with_gradients if backward else forward, units=gflop)


def sdpa(length, gflop, causal, backward=False):
    """`scaled_dot_product_attention`, which chooses its own kernel."""
    from torch.nn.functional import scaled_dot_product_attention

    def attend(query, key, value):
        return scaled_dot_product_attention(query, key, value, is_causal=causal)

    return torch_task(attend, heads(length), gflop, backward)


def flex(length, gflop, window):
    """Compiled `flex_attention` with the mask of a causal window; forward only, as on any CPU."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def mask_mod(batch, head, i, j):
        return (i >= j) & (i - j < window)

    # Compiled too: otherwise it makes the whole matrix of pairs.
    make_mask = torch.compile(create_block_mask)
    mask = make_mask(mask_mod, None, None, length, length, device="cpu")
    attend = torch.compile(flex_attention)
    return torch_task(lambda *inputs: attend(*inputs, block_mask=mask), heads(length), gflop)
