"""Tiny models of the golden files, of which these are rebuilt: each builder and each preset.

Version 0.2.0 wrote the files by `tests/golden/make.py`, a script that the history keeps, as it does
the models of a user's own. Do not change a model here: add another one.
"""

import hashlib
import random

import keras
import numpy as np

from keras_attn import layers, losses, memory, metrics, models, optimizers
from keras_attn.models import paper_sizes

SEED = 20170612
V, D, LENGTH = 11, 8, 12
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 13, "dropout": 0.1}
# Arguments of each builder, beside `SIZES`.
BUILDERS = {
    "adaptive_span_transformer": {"vocabulary_size": V, "max_span": 6, "ramp": 2},
    "bert": {"vocabulary_size": V, "max_length": 16},
    "big_bird": {"vocabulary_size": V, "max_length": 16, "block_length": 2},
    "chronos_bolt": {"patch_length": 4, "prediction_length": 5},
    "chronos_t5": {},
    "compressive_transformer": {"vocabulary_size": V, "memory_length": 6, "rate": 2},
    "decision_transformer": {"state_size": 4, "action_size": 4, "max_steps": 12},
    "deep_char_transformer": {"vocabulary_size": V, "max_length": 16},
    "gemma": {"vocabulary_size": V, "window": 4, "key_dim": 4, "num_key_value_heads": 1},
    "gpt": {"vocabulary_size": V, "max_length": 16},
    "gpt_oss": {"vocabulary_size": V, "key_dim": 4, "window": 4, "num_experts": 5},
    "gtrxl": {"state_shape": 4, "heads": {"policy": 4}, "memory_length": 12},
    "image_transformer": {"vocabulary_size": V, "image_shape": (3, 4, 1)},
    "llama": {"vocabulary_size": V, "num_key_value_heads": 1},
    "longformer": {
        "vocabulary_size": V,
        "max_length": 16,
        "window": 4,
        "num_global": 2,
        "global_projections": True,
    },
    "mistral": {"vocabulary_size": V, "window": 4},
    "mixtral": {"vocabulary_size": V, "num_experts": 3},
    "modern_bert": {"vocabulary_size": V, "window": 4, "global_every": 2},
    "patch_tst": {
        "context_length": LENGTH,
        "num_channels": 3,
        "prediction_length": 5,
        "patch_length": 4,
        "stride": 2,
    },
    "perceiver": {"vocabulary_size": V, "num_latents": 3, "max_length": 16},
    "reformer": {"vocabulary_size": V, "axial_shape": (4, 4), "chunk_length": 2},
    "sparse_transformer": {"vocabulary_size": V, "image_shape": (2, 8, 1)},
    "super_resolution_transformer": {
        "vocabulary_size": V,
        "source_shape": (1, 3, 1),
        "image_shape": (3, 4, 1),
        "num_encoder_layers": 1,
    },
    "switch_transformer": {"vocabulary_size": V, "num_experts": 3},
    "t5": {"vocabulary_size": V},
    "transformer": {"vocabulary_size": V},
    "transformer_xl": {"vocabulary_size": V, "memory_length": 12, "cutoffs": (4,), "div_val": 2},
    "universal_transformer": {"vocabulary_size": V, "depth": "act"},
    "vit": {"num_classes": V, "image_shape": (LENGTH, 4, 1), "patch_size": 2},
}
# Sizes that take the place of a preset's, by the beginning of its name; the longest one counts. A
# value of None leaves an argument out.
SMALL = {"vocabulary_size": V} | {name: n for name, n in SIZES.items() if name != "dropout"}
PRESETS = {
    "transformer": {},
    "bert": {"max_length": 16},
    "gpt2": {"max_length": 16},
    "deep_char": {"max_length": 16},
    "transformer_xl_enwik8": {"memory_length": 6},
    "transformer_xl_wikitext103": {"memory_length": 6, "cutoffs": [4, 8]},
    "transformer_xl_wikitext103_large": {"memory_length": 6, "cutoffs": [4, 8], "hidden_dim": 16},
    "compressive": {"memory_length": 6, "compressed_length": 4},
    "adaptive_span": {"max_span": 6, "ramp": 2},
    "sparse_transformer": {"image_shape": (2, 8, 1), "stride": 4, "summary": 2, "key_dim": 4},
    "reformer_enwik8": {
        "num_layers": 4,
        "axial_shape": (4, 4),
        "axial_dims": (4, 4),
        "chunk_length": 2,
        "num_buckets": 4,
        "local_length": 2,
        "key_dim": 4,
    },
    "reformer_imagenet64": {
        "axial_shape": (2, 2, 3),
        "axial_dims": (2, 2, 4),
        "chunk_length": 2,
        "num_buckets": 4,
        "key_dim": 4,
    },
    "universal": {},
    "adaptive_universal": {},
    "gtrxl": {"vocabulary_size": None, "state_shape": 4, "memory_length": 6},
    "image_transformer": {"image_shape": (3, 4, 1)},
    "image_transformer_2d": {},  # its pattern fits the image of the preset
    "image_transformer_cifar10_logistics": {
        "image_shape": (3, 4, 3),
        "num_mixtures": 2,
        "key_dim": 4,
    },
    "super_resolution": {
        "source_shape": (1, 3, 1),
        "image_shape": (3, 4, 1),
        "num_encoder_layers": 1,
    },
    "t5": {},
    "t5_11b": {"key_dim": 3},
    "t5_v1_1": {"key_dim": 3},
    "chronos": {"vocabulary_size": None},
    "switch": {"num_experts": 3},
    "llama": {},
    "llama3": {"num_key_value_heads": 1},
    "longformer": {"max_length": 16, "window": 4},
    "big_bird": {"max_length": 64, "block_length": 2},
    "modern_bert": {"window": 4},
    "vit": {"vocabulary_size": None, "num_classes": 3, "image_shape": (4, 4, 1), "patch_size": 2},
    "decision": {"vocabulary_size": None, "max_steps": 6},
    "perceiver": {"num_latents": 3, "latent_dim": 10, "key_dim": 4, "max_length": 16},
    "mistral": {"num_key_value_heads": 1, "window": 4},
    "mixtral": {"num_key_value_heads": 1, "num_experts": 3},
    "gpt_oss": {"num_key_value_heads": 1, "key_dim": 4, "window": 4, "num_experts": 5},
    "gemma2": {"num_key_value_heads": 1, "key_dim": 4, "window": 4},
}


def builder(name):
    """Return the tiny model of a builder of `keras_attn.models`."""
    return getattr(models, name)(**SIZES, **BUILDERS[name])


def overrides_of(name):
    """Return the tiny sizes of a preset."""
    beginning = max(filter(name.startswith, PRESETS), key=len)
    overrides = {**SMALL, **PRESETS[beginning]}
    return {key: x for key, x in overrides.items() if x is not None}


def preset(name):
    """Return the model of a preset with tiny sizes."""
    return models.create(name, **overrides_of(name))


def arguments_of(name):
    """Return a preset's builder and all arguments as a text, equal for presets of other sizes."""
    build, sizes = paper_sizes.PRESETS[name]
    return repr((build.__name__, sorted({**sizes, **overrides_of(name)}.items())))


def initial_weights(make, name):
    """Return a hash of the weights of `make(name)` for the seed, and their projection.

    The hash is of the names, the dtypes, the shapes and the bytes. The projection on a wave, a
    number, stays almost the same where another processor rounds a logarithm differently.
    """
    # Initializers draw their seeds from this generator alone. `keras.utils.set_random_seed` also
    # frees all kernels that TensorFlow has prepared, which takes longer than building a model.
    random.seed(SEED)
    digest, values = hashlib.sha256(), []
    for weight in make(name).weights:
        value = keras.ops.convert_to_numpy(weight)
        digest.update(f"{weight.name} {value.dtype} {value.shape} ".encode() + value.tobytes())
        values.append(value.ravel().astype("float64"))
    values = np.concatenate(values)
    return digest.hexdigest(), float(values @ np.cos(np.arange(len(values))))


def flags_of(model):
    """Return the name, dtype policy and `trainable` of each layer inside a model."""
    inside = model._flatten_layers(include_self=False)
    # Version 0.2.0 counted the settings of experts, a layer that is never built.
    inside += [x.expert for x in inside if isinstance(x, layers.MixtureOfExperts)]
    return [[layer.name, layer.dtype_policy.name, layer.trainable] for layer in inside]


def compiled_model():
    """Return a compiled causal model with dropout, without a memory."""
    model = builder("gpt")
    model.compile(
        optimizers.Adam(optimizers.Noam.from_peak(0.01, 4), clipnorm=1.0),
        losses.LabelSmoothedCrossentropy(0.1),
        metrics=[metrics.Perplexity(), metrics.TokenAccuracy()],
        run_eagerly=True,
    )
    return model


def compiled_segments():
    """Return a compiled model that keeps the memory of its segments."""
    model = memory.StatefulSegments(builder("transformer_xl"), batch_size=2)
    model.compile(optimizers.Adam(0.01), losses.LabelSmoothedCrossentropy(), run_eagerly=True)
    return model


TRAINED = {"gpt": compiled_model, "segments": compiled_segments}


def training_data(first=0):
    """Return the batches of the one epoch from `first` on, a `tf.data.Dataset`."""
    import tensorflow as tf

    ids = np.random.default_rng(3).integers(4, V, (5, 2, LENGTH + 1)).astype("int32")[first:]
    return tf.data.Dataset.from_tensor_slices(({"token_ids": ids[..., :-1]}, ids[..., 1:]))


def state_of(model):
    """Return the weights and seeds of a compiled model and of its optimizer, a list of arrays."""
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def engine_outputs(name, path):
    """Return what CTranslate2 gives for two rows of tokens: arrays of strings or of numbers."""
    import ctranslate2

    rows = [["4", "7", "5"], ["9", "10"]]
    if name == "encoder":
        output = ctranslate2.Encoder(path).forward_batch(rows)
        return {"states": np.array(output.last_hidden_state)}
    if name == "generator":
        results = ctranslate2.Generator(path).generate_batch(rows, max_length=5, return_scores=True)
        texts = [result.sequences[0] for result in results]
    else:
        engine = ctranslate2.Translator(path)
        results = engine.translate_batch(
            rows, beam_size=1, max_decoding_length=5, return_scores=True
        )
        texts = [result.hypotheses[0] for result in results]
    texts = np.array([" ".join(words) for words in texts])
    return {"texts": texts, "scores": np.array([result.scores[0] for result in results])}
