"""PyTorch with `torch.compile`, on a GPU where it finds one."""

from ..workload import SHAPES, Task
from .attention_inputs import heads
from .attention_torch import cores
from .pytorch import encoder_decoder, training_task


def training(size, batch, length, steps, policy, smoothing, dropout):
    """Optimizer steps of a compiled `nn.Transformer`; attention weights are not dropped."""
    import torch

    place, facts = device()
    shape = SHAPES[size]
    model = encoder_decoder(shape, length, dropout).train().to(place)
    for module in model.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
    compiled = torch.compile(model)
    task = training_task(compiled, shape, batch, length, steps, policy, smoothing, place)
    task.facts.update(facts)
    return noting_memory(task)


def sdpa(length, batch, dtype, gflop):
    """Compiled causal `scaled_dot_product_attention`, which chooses its own kernel."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    place, facts = device()
    attend = torch.compile(lambda *inputs: scaled_dot_product_attention(*inputs, is_causal=True))
    return attention_task(attend, length, batch, dtype, place, {"gflop": gflop, **facts})


def flex(length, batch, dtype, gflop, window):
    """Compiled `flex_attention` with the block mask of a causal window."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    place, facts = device()

    def mask_mod(batch, head, i, j):
        return (i >= j) & (i - j < window)

    # Compiled too: otherwise it makes the whole matrix of pairs.
    mask = torch.compile(create_block_mask)(mask_mod, None, None, length, length, device=place)
    attend = torch.compile(flex_attention)
    return attention_task(
        lambda *inputs: attend(*inputs, block_mask=mask),
        *(length, batch, dtype, place, {"gflop": gflop, **facts}),
    )


def attention_task(attend, length, batch, dtype, place, facts):
    """Forward and backward."""
    import torch

    inputs = [
        torch.tensor(array, dtype=getattr(torch, dtype), device=place, requires_grad=True)
        for array in heads(length, batch=batch)
    ]

    def call():
        output = attend(*inputs)
        torch.autograd.grad(output, inputs, output.detach())
        if place == "cuda":
            torch.cuda.synchronize()

    return noting_memory(Task(call=call, units=batch * length, facts=facts))


def device():
    """Return the device and its entries of the card; float32 products round as in JAX."""
    import torch

    torch.set_num_threads(cores())
    torch.set_float32_matmul_precision("high")
    if torch.cuda.is_available():
        return "cuda", {"device": torch.cuda.get_device_name(), "platform": "gpu"}
    return "cpu", {"device": "cpu", "platform": "cpu"}


def noting_memory(task):
    """Return the task, with the peak memory of the process on the device among its facts."""
    import torch

    def call():
        task.call()
        if torch.cuda.is_available():
            task.facts["device_mb"] = torch.cuda.max_memory_allocated() / 1e6

    return Task(call=call, units=task.units, facts=task.facts)
