"""PyTorch: `torch.nn.Transformer` in an ordinary eager training loop."""

import contextlib
import math

from ...common.machine import cores
from ..workload import SHAPES, Task, translation_batch


def encoder_decoder(shape, length, dropout):
    """`nn.Transformer` with one tied embedding table and learned positions."""
    import torch
    from torch import nn

    class EncoderDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(shape.vocabulary_size, shape.hidden_dim)
            self.positions = nn.Embedding(length, shape.hidden_dim)
            self.dropout = nn.Dropout(dropout)
            self.transformer = nn.Transformer(
                shape.hidden_dim,
                shape.num_heads,
                shape.num_layers,
                shape.num_layers,
                shape.intermediate_dim,
                dropout,
                batch_first=True,
            )

        def embed(self, ids):
            positions = torch.arange(ids.shape[1], device=ids.device)
            scale = math.sqrt(shape.hidden_dim)
            return self.dropout(self.tokens(ids) * scale + self.positions(positions))

        def forward(self, source, target):
            pairs = target.shape[1], target.shape[1]
            hidden = self.transformer(
                self.embed(source),
                self.embed(target),
                tgt_mask=torch.ones(pairs, device=target.device).triu(1).bool(),
                src_key_padding_mask=source == 0,
                tgt_key_padding_mask=target == 0,
                memory_key_padding_mask=source == 0,
            )
            return hidden @ self.tokens.weight.T

    return EncoderDecoder()


def training(size, batch, length, steps, policy, smoothing, dropout):
    """Optimizer steps of a plain loop on processors: eager float32 or autocast to bfloat16."""
    import torch

    torch.set_num_threads(cores())
    shape = SHAPES[size]
    model = encoder_decoder(shape, length, dropout).train()
    return training_task(model, shape, batch, length, steps, policy, smoothing)


def training_task(model, shape, batch, length, steps, policy, smoothing, device="cpu"):
    """Optimizer steps of a model on the device, synchronised after each call."""
    import torch

    arrays = translation_batch(batch, length, shape.vocabulary_size)
    source, target, labels = (
        torch.tensor(array, dtype=torch.long, device=device) for array in arrays
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    precision = {
        "float32": contextlib.nullcontext,
        "mixed_bfloat16": lambda: torch.autocast(device, torch.bfloat16),
    }[policy]

    def train():
        for _ in range(steps):
            with precision():
                logits = model(source, target)
            loss = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), label_smoothing=smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Task(
        call=train,
        units=steps * batch * 2 * length,
        facts={"parameters": parameters, "policy": policy},
    )
