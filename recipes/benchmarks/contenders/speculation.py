"""A trained language model that writes alone, or with a draft that was distilled from it."""

import dataclasses
import math
import os

from ...common import files
from ...common.options import option_fields
from ...language_model.options import RecipeOptions
from ..workload import Task

MODEL, TOKENS = "model.keras", "tokens"
SIZES_OF_HEADS = "num_key_value_heads", "key_dim", "value_dim"  # a draft has its own
PROMPTS, PROMPT_TOKENS = 4, 64  # continuations of a call at least, and most tokens of a prompt


def read_options(run):
    """Return the options of the recipe that a run's model was trained with."""
    path = os.path.join(run, "settings.json")
    names = [field.name for field in option_fields(RecipeOptions) if field.metadata["identity"]]
    settings = files.read_object(path, "train the run again", *names)
    return RecipeOptions(**{name: settings[name] for name in names})


def train_draft(run, path, layers, width, steps):
    """Distil a draft of the run's own kind and write it to `path`.

    Only the target's probabilities are learned: the more alike the two are, the more proposals are
    accepted, whatever the text says.
    """
    import keras

    from keras_attn import losses, text
    from keras_attn.files import atomic_file

    from ...common.epoch_dataset import EpochDataset
    from ...common.optimizer import adam
    from ...language_model.architectures import build
    from ...text.segments import make_segments

    target = keras.saving.load_model(os.path.join(run, MODEL))
    if getattr(target, "memory", None) is not None:
        raise ValueError(
            "The run's model must be one without a memory, which the distillation does not read. "
            f"Received: {target.name}."
        )
    options = read_options(run)
    options = dataclasses.replace(
        options,
        more=[each for each in options.more if each.partition("=")[0] not in SIZES_OF_HEADS],
        num_layers=layers,
        num_heads=math.gcd(width, max(1, width * options.num_heads // options.hidden_dim)),
        hidden_dim=width,
        intermediate_dim=max(1, width * options.intermediate_dim // options.hidden_dim),
        dropout=0.0,
        steps=steps,
        warmup_steps=steps // 20,
    )
    keras.utils.set_random_seed(options.seed)
    draft = build(options, target.embedding.vocabulary_size)
    trained = losses.Distillation(draft, target, temperature=1.0, weight=1.0)
    trained.compile(adam(options), losses.LabelSmoothedCrossentropy(0.0), jit_compile=False)
    ids = text.TokenFiles(os.path.join(run, TOKENS), "train")
    segments = make_segments(ids, options, steps, in_order=False)
    trained.fit(EpochDataset(segments).data(), shuffle=False, verbose=2)
    with atomic_file(path) as temporary:
        draft.save(temporary)


def alone(path, run, batch, strategy, new_tokens, jit_compile):
    """Cached decoding by the model in a file."""
    import keras

    model = keras.saving.load_model(path)
    batches = _prompts(run, batch, new_tokens)
    written = _writer(model, _strategy(strategy), batches, new_tokens, jit_compile)
    ids = [row for ids, _ in written() for row in ids.tolist()]
    return Task(written, len(ids) * new_tokens, {"ids": ids, "parameters": model.count_params()})


def speculative(path, run, batch, strategy, new_tokens, jit_compile, tokens):
    """Decoding by the run's model, for which the draft in a file proposes so many `tokens`."""
    import keras
    import numpy as np

    from keras_attn import generation

    class Counting(generation.Speculative):
        """It returns the steps of each row beside the scores, for the same work."""

        dynamic = ()

        def decode(self, model, inputs, options):
            ids, scores, steps = self.decode_and_count(model, inputs, options)
            return ids, (scores, steps)

    target, draft = (keras.saving.load_model(each) for each in (os.path.join(run, MODEL), path))
    strategy = _strategy(strategy)
    batches = _prompts(run, batch, new_tokens)
    counting = Counting(draft, tokens, strategy)
    written = _writer(target, counting, batches, new_tokens, jit_compile)
    outputs = written()
    rounds = [np.asarray(steps) - 1 for _, (_, steps) in outputs]  # the first step reads the prompt
    ids = np.concatenate([ids for ids, _ in outputs])
    facts = {
        "ids": ids.tolist(),
        "tokens": tokens,
        "calls": len(batches),
        # A call ends with the last of its rows.
        "rounds": int(sum(each.max() for each in rounds)),
        "written": (new_tokens - 1) / float(np.mean(np.concatenate(rounds))),
        "acceptance": _acceptance(target, draft, strategy, np.concatenate(batches), ids),
    }
    return Task(written, ids.size, facts)


def _strategy(name):
    from keras_attn import generation

    return generation.Sample(seed=0) if name == "sample" else generation.Greedy()


def _prompts(run, batch, new_tokens):
    """Return batches (batch, length) of pieces of the validation text at equal distances."""
    import numpy as np

    from keras_attn import text

    ids = text.TokenFiles(os.path.join(run, TOKENS), "valid")
    length = min(PROMPT_TOKENS, read_options(run).context - new_tokens)
    num_batches = math.ceil(PROMPTS / batch)
    starts = np.linspace(0, len(ids) - length, num_batches * batch, dtype=int)
    rows = np.stack([ids[start : start + length] for start in starts.tolist()])
    return np.split(rows, num_batches)


def _writer(model, strategy, batches, new_tokens, jit_compile):
    """Return a function that continues all prompts, each by exactly `new_tokens`."""
    from keras_attn import generation

    def written():
        outputs = [
            generation.generate(
                model, prompts, strategy, new_tokens, eos_id=-1, jit_compile=jit_compile
            )
            for prompts in batches
        ]
        return [(ids.numpy(), scores) for ids, scores in outputs]

    return written


def _acceptance(target, draft, strategy, prompts, ids):
    """Return the paper's acceptance rate on a text of the target: the mean of sum min(p, q)."""
    import numpy as np
    from keras import ops

    tokens = np.concatenate([prompts, ids[:, :-1]], axis=1)
    p, q = (
        strategy.distribution(ops.reshape(logits, (-1, logits.shape[-1])))[0]
        for model in (target, draft)
        for logits in [model({"token_ids": tokens})[:, prompts.shape[1] :]]
    )
    return float(ops.mean(ops.sum(ops.minimum(p, q), axis=-1)))
