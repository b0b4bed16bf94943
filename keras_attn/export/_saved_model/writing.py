"""Export a model as a SavedModel that TensorFlow Serving runs."""

import contextlib
import dataclasses

import tensorflow as tf

from keras_attn.export._saved_model.derived_weights import prepared_weights
from keras_attn.export._saved_model.quantization import FORMATS, quantized
from keras_attn.export.checks import check_backend
from keras_attn.export.decoding_record import Decoding, write_decoding
from keras_attn.export.golden_outputs import default_inputs, prediction_log, write_warmup_records
from keras_attn.export.saved_model_files import COMPILATION_FILE, SERIES_FILE, write_facts
from keras_attn.export.servable_ops import MUST_COMPILE, unservable_ops
from keras_attn.export.signatures.compiled_decoding import (
    CompiledDecoding,
    check_compilation,
    check_decodes,
)
from keras_attn.export.signatures.model_functions import ExportOptions
from keras_attn.export.signatures.selection import functions_of
from keras_attn.export.signatures.text_model import TextModel
from keras_attn.export.versions import free_version, new_version
from keras_attn.generation.decoding import get_strategy
from keras_attn.layers.lora import check_merged
from keras_attn.memory import StatefulSegments
from keras_attn.ops.checks import check_choice


def saved_model(
    model,
    path,
    *,
    tokenizer=None,
    strategy=None,
    max_length=64,
    max_source_length=None,
    quantize=None,
    version=None,
    stream=False,
    eos_id=None,
    labels=None,
    bos_id=None,
    compile=None,
    buckets=None,
    kind=None,
    inputs=None,
    from_logits=None,
    horizon=None,
):
    """Write `path`/`version`/, a SavedModel whose signatures fit the kind of model.

    Encoder-decoder:

        serving_default: text (string, [B]) -> translation (string, [B]), score (float32, [B])
        ids: source_ids (int32, [B, S]), source_lengths (int32, [B]) -> ids, score
        attention: text -> translation, score, source_tokens (string, [B, S]), source_lengths,
            tokens (string, [B, T]), lengths, cross_attention (float32, [B, L, N, T, S])

    Causal model:

        serving_default: text (string, [B]) -> continuation (string, [B]), score (float32, [B])
        ids: token_ids (int32, [B, S]), lengths (int32, [B]) -> ids, score
        score: text (string, [B]) -> log_probability (float32, [B]), num_tokens (int32, [B])

    Masked language model:

        encode: token_ids (int32, [B, T]), lengths (int32, [B]) -> features (float32, [B, T, D])
        logits: token_ids, lengths -> logits (float32, [B, T, V])

    Classifier of images, or of series or ids in their place:

        classify: images (float32, [B, H, W, C]), series of values (float32, [B, T, C]), or
            token_ids and lengths -> probabilities (float32, [B, K]), class (int32, [B])

    Classifier of texts, with a tokenizer:

        classify: text (string, [B]) -> label (string, [B]), probabilities (float32, [B, K]),
            labels (string, [B, K])
        classify_pair: text, second_text (string, [B]) -> label, probabilities, labels
        ids: token_ids (int32, [B, T]), lengths (int32, [B]) -> probabilities, class

    With one class `regress` gives a value (float32, [B]) in place of these outputs, without classes
    `embed` gives features (float32, [B, D]).

    Sentence encoder, which is a `Classifier` without classes, with a `SentenceTokenizer`:

        embed: text (string, [B]), optional prompt (string, [B] or [1]) -> features (float32,
            [B, D])
        embed_query, embed_document: text -> features
        embed_pair: text, second_text -> features
        ids: token_ids, lengths -> features

    Masked language model with an `AnswerHead`, with a tokenizer, beside `encode` and `logits`:

        answer: question, text (string, [B]) -> answer (string, [B]), score (float32, [B])

    Masked language model whose head gives classes, with a tokenizer and `labels`:

        tag: text (string, [B]) -> words, labels (string, [B, W]), probabilities (float32, [B, W])

    Any other `keras.Model` that reads ids, with a tokenizer, has `classify`, `regress`, `embed` or
    `tag` as above, or `predict` with several outputs under their names. Beside it are `ids`, and
    its `_pair` if the model reads segments. `TextModel` says which.

    Model with a memory:

        initial_memory: batch_size (int32, []) -> memory, memory_length
        step: token_ids (int32, [B, T]), lengths (int32, [B]), memory (float32, [B, L, M, D]),
            memory_length (int32, [B]) -> logits (float32, [B, T, V]), memory, memory_length
        tokenize: text (string, [B]) -> token_ids (int32, [B, T]), lengths (int32, [B])
        detokenize: token_ids (int32, [B, T]) -> text (string, [B])
        end_tokens: batch_size (int32, []) -> token_ids (int32, [B, E])

    Causal model with `stream=True`, by which a server streams; with a tokenizer beside its own:

        initial_state: batch_size (int32, []) -> key, value, index
        step: token_ids (int32, [B, T]), key, value (float32, [B, L, N, M, H]), index (int32, [])
            -> logits (float32, [B, T, V]), key, value, index
        end_tokens: batch_size (int32, []) -> token_ids (int32, [B, E])
        max_positions: batch_size (int32, []) -> max_positions (int32, [B]), if there is a limit
        tokenize, detokenize: as of a model with a memory, with a tokenizer

    A model that reads states, as `gtrxl`, has states (float32, [B, T, ...]) in place of token_ids
    and the outputs of its heads in place of logits. Model of episodes, as `decision_transformer`:

        act: returns (float32, [B, T]), states (float32, [B, T, S]), actions (float32, [B, T, A]),
            lengths (int32, [B]) -> actions

    Forecaster of series, whose missing values are NaN, or (B, T, C) and (B, H, C, Q) of channels:

        forecast: values (float32, [B, T]) -> quantiles (float32, [B, H, Q]), levels (float32,
            [B, Q]), mean (float32, [B, H]); of a model of points or a distribution `mean` alone
        sample: values, seed (int32, [B]) -> samples (float32, [B, N, H]), quantiles, levels, mean;
            if the model draws paths, as `chronos_t5`

    Model of images:

        generate: batch_size (int32, []), seed (int32, []) -> images (int32, [B, H, W, C]),
            score (float32, [B])
        score: images (int32, [B, H, W, C]) -> bits_per_dim (float32, [B])

    Model for super-resolution:

        generate: images (int32, [B, H', W', C]), seed (int32, []) -> images, score

    Encoder-decoder, causal model, classifier of texts or ids, or masked language model whose depth
    is an `ACT`, beside its own:

        halting: text (string, [B]), or ids and lengths -> tokens (string, [B, T]), lengths,
            steps (int32, [B, T]), remainders (float32, [B, T])

    It has tokens and lengths for a text only. That of an encoder-decoder also has the outputs of
    the default signature, and source_tokens, source_lengths, source_steps and source_remainders.

    Batch and length are dynamic. Without a tokenizer the default signature is `ids`, `score` reads
    ids and lengths, and a model with a memory has no `tokenize` and `detokenize`. The default is
    `step` with a memory, `logits` of a masked language model, `classify` of a classifier, `act` of
    episodes, `forecast` of series and `generate` of images.

    With `compile="xla"` the signatures that decode, `ids` and the default one, are compiled for the
    shapes in `buckets` when the export is loaded. Their plain twins for servers without XLA are
    `plain_ids` and `plain`.

    Decoding reads copies of the weights, joined, scaled and transposed when the export is loaded.
    To assign to a variable of the loaded object does not change them. The copies take memory until
    the process or a server's session ends, and no bytes of the files.

    The directory is written under a temporary name and renamed, so a server that polls `path` finds
    the version complete or not at all. It carries one small request for each signature, which a
    server runs before the first client's, and the outputs, which `inspect` and the embedded server
    compare.

    Args:
        model: an `EncoderDecoder`, a `CausalLanguageModel`, a `MaskedLanguageModel`, a
            `Classifier`, a `TrajectoryModel`, a model with a memory, or a `StatefulSegments` of
            one. With `ImageCoordinates` as position and without a tokenizer it is a model of
            images. Or a functional or subclassed `keras.Model` of your own that reads ids.
        path: directory that holds the versions, TensorFlow Serving's `model_base_path`.
        tokenizer: from `keras_attn.text`.
        strategy: name or object of a decoding strategy, by default "greedy"; images are sampled.
        max_length: int. Most tokens to generate.
        max_source_length: int. Most source tokens to read, limited by the model's positions; by
            default the tokenizer's `max_length`, all source positions of an encoder-decoder, or
            1024 without these. A longer source is truncated; of a longer prompt the last tokens
            are read.
        quantize: "int8" stores large weights of two axes or more in eight bits: the variables take
            little more than a quarter of the bytes, and outputs change slightly. "int4" stores
            them in four bits: a seventh. Each 32 weights have a scale. The compute dtype stays.
        version: int. By default one more than the highest version.
        stream: bool. If True, the signatures of a causal model are those of a `TokenStream`, with a
            tokenizer those of a `TextStream`. Where all keys are kept, a stream has as many tokens
            as the model positions; without a limit `max_source_length + max_length`.
        eos_id: int, or a list of several. The token that ends a generated text, by default that of
            the tokenizer, or 3.
        labels: list of the names of the classes of texts, by default their numbers, or of words;
            of a model of your own with several outputs a dict of lists.
        bos_id: int. The token before the first target token of an encoder-decoder, by default the
            model's `start_id`, that of the tokenizer, or 2.
        compile: "xla" compiles the decoding of an encoder-decoder or a causal model. In float32 the
            texts and ids are those of the plain export; with a `Sample` of a seed if the number of
            rows is one of the buckets'. TensorFlow Serving needs `--xla_cpu_compilation_enabled`.
        buckets: a `Buckets`. The shapes to compile for, each at every load; by default those of
            `Buckets()`.
        kind, inputs, from_logits: of a model of your own, as `TextModel` takes them. By default
            what it returns and the names of its inputs decide.
        horizon: int. Number H of values that a forecaster gives, by default its own
            `prediction_length`; beyond it by the rule of `generation.forecast`.

    Returns:
        The directory of the version, a string.

    Raises:
        ValueError: if the version exists or is not positive, the model has too few positions for
            `max_length`, a tokenizer or `labels` do not fit the model, the graph has an operation
            that TensorFlow Serving does not run, the model cannot be compiled, the backend is not
            TensorFlow, or as `TextModel`.
        ImportError: if tensorflow-serving-api is not installed.

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.transformer(10, 1, 2, 8, 16)
        >>> directory = keras_attn.export.saved_model(model, tempfile.mkdtemp(), max_length=4)
        >>> directory[-2:]
        '/1'

    Reference: https://www.tensorflow.org/tfx/serving/serving_basic
    """
    if isinstance(model, StatefulSegments):
        model = model.model
    check_backend()
    if max_source_length is None:
        limits = getattr(tokenizer, "max_length", None), getattr(model, "max_source_length", None)
        max_source_length = next(filter(None, limits), 1024)
    check_choice((None, *FORMATS), quantize=quantize)
    buckets = check_compilation(compile, buckets)
    check_merged(model)
    free_version(path, version)
    prediction_log()  # raises before anything slow if its package is missing
    copied = contextlib.nullcontext((model, ()))
    if quantize is not None:
        copied = quantized(model, quantize)
    with copied as (model, variables), prepared_weights() as prepared:
        options = ExportOptions(
            tokenizer,
            strategy,
            max_length,
            max_source_length,
            eos_id,
            bos_id,
            labels,
            stream,
            kind=kind,
            inputs=inputs,
            from_logits=from_logits,
            horizon=horizon,
        )
        _check_tokenizer(model, options)
        functions = functions_of(model, options)
        decodes, series, requests = functions.decodes, functions.series, []
        if buckets is not None:
            check_decodes(functions)
            compiled = functions_of(model, dataclasses.replace(options, buckets=buckets))
            functions = CompiledDecoding(functions, compiled)
            functions.try_compiler(model)
            requests = functions.requests(model)
        resources = functions.make_resources()
        resources.quantized = variables
        with new_version(path, version) as (temporary, directory):
            # Each function is traced once: `save` would trace a `tf.function` again.
            traced = {
                name: f if default_inputs(f) else f.get_concrete_function()
                for name, f in functions.signatures.items()
            }
            resources.prepared = prepared.weights
            # A server computes no gradients, whose functions can be half the file.
            without_gradients = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
            tf.saved_model.save(resources, temporary, traced, without_gradients)
            allowed = set() if buckets is None else {MUST_COMPILE}
            unservable = ", ".join(sorted(set(unservable_ops(temporary)) - allowed))
            if unservable:
                raise ValueError(
                    f"TensorFlow Serving lacks operations of the model. Received: {unservable}."
                )
            write_warmup_records(temporary, functions.signatures, model, tokenizer, requests)
            if buckets is not None:
                write_facts(temporary, COMPILATION_FILE, functions.facts)
            if series is not None:
                write_facts(temporary, SERIES_FILE, series)
            if decodes:
                strategy, max_length, *_ = options.decoding
                write_decoding(temporary, Decoding.of(get_strategy(strategy), max_length))
    return directory


def _check_tokenizer(model, options):
    """Refuse a model of the user's own without a tokenizer: Keras exports it as well."""
    if options.tokenizer is None and TextModel.fits(model, options):
        raise ValueError(
            "A model of your own needs a `tokenizer`, which turns texts into its ids; without "
            "one, `model.export(path)` of Keras writes the model itself. "
            "Received: tokenizer=None."
        )
