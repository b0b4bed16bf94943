"""Peers in PyTorch: GPT-2 of Hugging Face, and x-transformers with and without a memory."""

from .quality import BETAS, EPSILON, Budget, task


def hugging_face(folder, seed):
    """`GPT2LMHeadModel` of transformers, with its own initial values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    budget = _start(folder, "windows", seed)
    sizes = budget.sizes
    dropouts = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    config = GPT2Config(
        vocab_size=sizes["vocabulary_size"],
        n_positions=sizes["context"],
        n_embd=sizes["hidden_dim"],
        n_layer=sizes["num_layers"],
        n_head=sizes["num_heads"],
        n_inner=sizes["intermediate_dim"],
        use_cache=False,
        **dict.fromkeys(dropouts, budget.dropout),
    )
    model = GPT2LMHeadModel(config)
    return _task(budget, model, lambda tokens, memory: (model(tokens).logits, None))


def x_transformers(folder, seed):
    """`Decoder` of x-transformers, with learned positions and its other defaults."""
    budget = _start(folder, "windows", seed)
    model = _decoder(budget)
    return _task(budget, model, lambda tokens, memory: (model(tokens), None))


def x_transformers_xl(folder, seed):
    """The same with a memory of the hidden states, and the relative bias of its documentation."""
    budget = _start(folder, "segments", seed)
    model = _decoder(budget, max_mem_len=budget.sizes["memory"], rel_pos_bias=True)
    return _task(budget, model, lambda tokens, memory: model(tokens, mems=memory, return_mems=True))


def _decoder(budget, max_mem_len=0, **options):
    from x_transformers import Decoder, TransformerWrapper

    sizes, dropout = budget.sizes, budget.dropout
    layers = Decoder(
        dim=sizes["hidden_dim"],
        depth=sizes["num_layers"],
        heads=sizes["num_heads"],
        attn_dim_head=sizes["hidden_dim"] // sizes["num_heads"],
        ff_mult=sizes["intermediate_dim"] / sizes["hidden_dim"],
        attn_dropout=dropout,
        ff_dropout=dropout,
        layer_dropout=0.0,
        **options,
    )
    return TransformerWrapper(
        num_tokens=sizes["vocabulary_size"],
        max_seq_len=sizes["context"],
        max_mem_len=max_mem_len,
        emb_dropout=dropout,
        tie_embedding=True,
        attn_layers=layers,
    )


def _start(folder, kind, seed):
    import torch

    torch.manual_seed(seed)
    return Budget.read(folder, kind, seed)


def _task(budget, model, call):
    """Train a module in an eager loop; `call` returns logits and a memory."""
    import torch

    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.0, betas=BETAS, eps=EPSILON)
    state = {"memory": None}

    def forward(tokens, reset):
        if reset:
            state["memory"] = None
        logits, state["memory"] = call(torch.from_numpy(tokens).long(), state["memory"])
        return logits

    def train(tokens, targets, reset, step):
        model.train()
        logits = forward(tokens, reset).flatten(0, 1)
        labels = torch.from_numpy(targets).long().flatten()
        loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        if budget.clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, budget.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = budget.rate(step)
        optimizer.step()
        return loss.item()

    def predict(tokens, reset):
        model.eval()
        with torch.no_grad():
            return forward(tokens, reset).numpy()

    return task(budget, sum(weight.numel() for weight in parameters), train, predict)
