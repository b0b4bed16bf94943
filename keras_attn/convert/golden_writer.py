"""Write the outputs of transformers for a checkpoint: python golden_writer.py FOLDER FILE.

A program of its own: transformers and TensorFlow in one process abort it on some machines, so
nothing of keras_attn is imported. It needs torch and transformers.
"""

import sys

import numpy as np

LENGTH, MAX_COLUMNS, MAX_SLOTS = 23, 256, 5
NUM_GLOBAL = 6  # of the questions to a Longformer
SEGMENTED = ("albert", "bert", "big_bird", "deberta-v2", "electra")  # which read segments
_OF_SERIES = "regression_outputs", "prediction_output"
# Families whose classes of transformers are all causal.
DECODERS = ("gpt2", "llama", "mistral", "qwen", "gemma", "gpt_oss", "granite", "mixtral", "olmo")
DECODERS += ("phi", "smollm3", "starcoder2", "gpt_neox", "gptj", "falcon", "opt", "bloom")


def sample_inputs(config):
    """Return inputs of a model by our names: two rows, of which the second one is padded."""
    random = np.random.RandomState(0)
    if hasattr(config, "num_channels"):
        shape = (2, config.image_size, config.image_size, config.num_channels)
        return {"images": random.standard_normal(shape).astype("float32")}
    if config.model_type == "patchtst":
        return sample_series(config, random)
    if reads_values(config):
        values = random.standard_normal((2, LENGTH)).cumsum(1)
        values[1, :5] = values[1, 9] = np.nan
        return {"values": values.astype("float32")}
    if config.model_type == "decision_transformer":
        return sample_trajectories(config, random)
    limit = getattr(config, "max_position_embeddings", -1)  # which is no limit
    # RoBERTa leaves 2 out, and Perceiver predicts tokens at all positions.
    spare = 0 if config.model_type == "perceiver" else 2
    length = LENGTH if limit < 0 else min(LENGTH, limit - spare)
    vocabulary = config.vocab_size
    if is_causal(config):
        ids = random.randint(0, vocabulary, (2, length))
        ids[:, 3] = 0  # a token in most of these models
        ids = pad_causal(ids, config) if reads_last(config) else ids
        return {"token_ids": ids, **sample_memory(config, random)}
    ids = pad(random.randint(0, vocabulary, (2, length)), config.pad_token_id)
    if config.is_encoder_decoder and reads_by_both(config):
        return {"token_ids": with_ends(ids, config)}
    if config.is_encoder_decoder and not is_encoder(config):
        targets = pad(random.randint(0, vocabulary, (2, length - 4)), config.pad_token_id)
        start = config.decoder_start_token_id
        targets[:, 0] = config.bos_token_id if start is None else start  # None in an mBART
        return {"source_ids": ids, "target_ids": targets}
    if config.model_type == "longformer" and answers(config):
        return {"token_ids": with_separators(ids, config)}
    if config.model_type in SEGMENTED and config.type_vocab_size > 0:
        segments = random.randint(0, config.type_vocab_size, ids.shape)
        return {"token_ids": ids, "segment_ids": segments}
    return {"token_ids": ids}


def reads_values(config):
    """Return True for a Chronos-Bolt, whose configuration is one of T5."""
    return "input_patch_size" in getattr(config, "chronos_config", {})


def sample_series(config, random):
    """Return two series around different levels, of which the first one has gaps."""
    shape = (2, config.context_length, config.num_input_channels)
    values = 3 * random.standard_normal(shape) + random.standard_normal((2, 1, shape[2]))
    values[0, 2 : 2 + shape[1] // 3, 0] = np.nan
    return {"values": values.astype("float32")}


def sample_trajectories(config, random):
    """Return two episodes, of which the second one begins at step 2 and ends with padding."""
    length, sizes = 7, {"returns": (), "states": (config.state_dim,), "actions": (config.act_dim,)}
    values = {k: random.standard_normal((2, length, *size)) for k, size in sizes.items()}
    mask = np.ones((2, length), bool)
    mask[1, 5:] = False
    steps = np.arange(length) + np.array([[0], [2]])
    return {
        **{name: value.astype("float32") for name, value in values.items()},
        "steps": steps.astype("int32"),
        "padding_mask": mask,
    }


def sample_memory(config, random):
    """Return the inputs of a memory of Transformer-XL, all of whose few slots are filled."""
    count = min(getattr(config, "mem_len", 0), MAX_SLOTS)
    if not count:
        return {}
    memory = random.standard_normal((2, config.n_layer, count, config.d_model))
    return {"memory": memory.astype("float32"), "memory_length": np.full(2, count, "int32")}


def pad(ids, pad_id):
    """Replace ids that are padding, and make padding of the end of the second row."""
    ids[ids == pad_id] = 5 + (pad_id == 5)
    ids[1, ids.shape[1] * 2 // 3 :] = pad_id
    return ids


def pad_causal(ids, config):
    """Return rows whose last token but padding is read; one row without padding."""
    if config.pad_token_id is None:
        return ids[:1]
    ids = pad(ids, config.pad_token_id)
    ids[0, 4] = config.pad_token_id  # in a text it is a token
    return ids


def is_causal(config):
    """Return True for a model whose tokens see those before them."""
    endings = ("CausalLM", "LMHeadModel", "ModelWithLMHead")
    is_decoder = config.model_type.startswith(DECODERS)
    return is_decoder or any(name.endswith(endings) for name in config.architectures or [])


def is_encoder(config):
    """Return True for the encoder alone of a family of encoder-decoders."""
    endings = ("EncoderModel", "ForTokenClassification")
    return any(name.endswith(endings) for name in config.architectures or [])


def reads_by_both(config):
    """Return True for an encoder-decoder whose decoder reads the text of the encoder."""
    names = config.architectures or []
    return answers(config) or any(name.endswith("ForSequenceClassification") for name in names)


def answers(config):
    """Return True for a model that answers questions."""
    return any(name.endswith("ForQuestionAnswering") for name in config.architectures or [])


def with_ends(ids, config):
    """Return rows of ids with two ends of sentences each, of which none is the last token."""
    end = config.eos_token_id
    if end is None:  # no class reads it
        return ids
    ids[ids == end] = next(i for i in range(5, 9) if i not in (end, config.pad_token_id))
    lengths = (ids != config.pad_token_id).sum(axis=1)
    ids[:, 3] = end
    ids[np.arange(2), lengths - 3] = end
    return ids


def with_separators(ids, config):
    """Return pairs whose first text has NUM_GLOBAL tokens, with the special one before it."""
    separator = config.sep_token_id
    ids[ids == separator] = next(
        i for i in range(5, 9) if i not in (separator, config.pad_token_id)
    )
    ids[:, NUM_GLOBAL : NUM_GLOBAL + 2] = separator
    ids[np.arange(2), (ids != config.pad_token_id).sum(axis=1) - 1] = separator
    return ids


def reads_last(config):
    """Return True for a decoder whose classes or features are those of the last token."""
    names = [x for x in config.architectures or [] if not x.endswith("LMHeadModel")]
    is_of_texts = any(name.endswith(("SequenceClassification", "Model")) for name in names)
    return is_of_texts and config.model_type.startswith(DECODERS)


def last_tokens(inputs, config):
    """Return the index of each row's last token but padding, where it is read; else None."""
    if not reads_last(config):
        return None
    ids = inputs["token_ids"]
    return ids.shape[1] - 1 - np.argmax((ids != config.pad_token_id)[:, ::-1], axis=1)


def their_inputs(inputs, config):
    """Return the arguments of transformers for our inputs."""
    if "images" in inputs:
        return {"pixel_values": inputs["images"].transpose(0, 3, 1, 2).copy()}
    if reads_values(config):
        return {"context": inputs["values"]}
    if "values" in inputs:
        return fill_gaps(inputs["values"], config)
    if "returns" in inputs:
        names = {"returns": "returns_to_go", "steps": "timesteps", "padding_mask": "attention_mask"}
        arguments = {names.get(name, name): value for name, value in inputs.items()}
        arguments["returns_to_go"] = inputs["returns"][..., None]
        arguments["attention_mask"] = inputs["padding_mask"].astype("int64")
        return {
            name: x.astype("int64") if x.dtype == "int32" else x for name, x in arguments.items()
        }
    names = {
        "token_ids": "input_ids",
        "source_ids": "input_ids",
        "target_ids": "decoder_input_ids",
        "segment_ids": "token_type_ids",
    }
    arguments = {names[name]: value for name, value in inputs.items() if name in names}
    if "memory" in inputs:
        arguments["mems"] = inputs["memory"].transpose(1, 2, 0, 3).copy()
    if not is_causal(config):
        arguments["attention_mask"] = (arguments["input_ids"] != config.pad_token_id).astype(
            "int64"
        )
    return arguments


def fill_gaps(values, config):
    """Return the values of transformers, and which are observed.

    A missing one is replaced by the number that the scaler turns to 0.
    """
    observed = ~np.isnan(values)
    mean = np.nanmean(values, axis=1, keepdims=True) if config.scaling == "std" else 0.0
    return {
        "past_values": np.where(observed, values, mean).astype(values.dtype),
        "past_observed_mask": observed.astype(values.dtype),
    }


def real_outputs(inputs, outputs, config):
    """Return a mask of the outputs that padding does not touch."""
    if "padding_mask" in inputs:
        return inputs["padding_mask"]
    ids = inputs.get("target_ids", inputs.get("token_ids"))
    if ids is None or outputs.ndim < 3 or is_causal(config):
        return np.ones(outputs.shape[:-1], bool)
    mask = ids != config.pad_token_id
    mask[:, 0] = True  # the padding that starts targets
    return mask


def forecast(outputs, config):
    """Return points, or the parameters of a distribution in the scale of the series."""
    import torch

    parts, loc, scale = outputs.prediction_outputs, outputs.loc, outputs.scale
    if not isinstance(parts, tuple):
        return parts
    if config.distribution_output == "negative_binomial":
        return torch.stack([parts[0], parts[1] + scale.log()], -1)
    return torch.stack([*parts[:-2], parts[-2] * scale + loc, parts[-1] * scale], -1)


def main_output(outputs, last=None, config=None):
    """Return logits, also those of answers, or the features of a model without a head.

    Features are those of the tokens `last`, by default of the pooler or the first token.
    """
    import torch

    if "quantile_preds" in outputs:
        return outputs["quantile_preds"].transpose(1, 2)
    if "prediction_outputs" in outputs:
        return forecast(outputs, config)
    if "start_logits" in outputs:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    for name in ("logits", "prediction_logits", "prediction_scores", "action_preds", *_OF_SERIES):
        if name in outputs:
            one_a_token = type(outputs).__name__ == "ElectraForPreTrainingOutput"
            return outputs[name][..., None] if one_a_token else outputs[name]
    if last is not None:
        return outputs.last_hidden_state[np.arange(len(last)), last]
    pooled = outputs.get("pooler_output")
    return outputs.last_hidden_state[:, 0] if pooled is None else pooled


def class_of(name):
    """Return a class of transformers, or of chronos-forecasting, by its name."""
    import transformers

    if hasattr(transformers, name):
        return getattr(transformers, name)
    import chronos.chronos_bolt

    return getattr(chronos.chronos_bolt, name)


def load(folder):
    """Return the model of a folder in float32, and its configuration."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    kind = class_of((config.architectures or ["AutoModel"])[0])
    model, report = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if report["missing_keys"] or report["mismatched_keys"]:
        sys.exit(f"transformers has no weights for {report}. Received: folder={folder!r}.")
    if model.dtype != torch.float32:  # the default is the file's
        sys.exit(f"transformers loaded the folder in {model.dtype}, not in float32.")
    repair(model, config)
    return model, config


def repair(model, config):
    """Undo two mistakes of transformers, and a draw that no seed fixes."""
    import torch

    if config.model_type == "patchtst":
        sys.modules[type(model).__module__].random_masking = mask_patches

    if config.model_type == "reformer":
        model.lm_head.decoder.bias = model.lm_head.bias  # which version 5 forgets to add
    if config.model_type == "transfo-xl":  # of version 4.57, which calls `type_as(dtype=...)`
        torch.Tensor.type_as = lambda x, other=None, dtype=None: x.to(dtype or other.dtype)


def mask_patches(
    inputs, mask_ratio, unmasked_channel_indices, channel_consistent_masking, mask_value
):
    """Mask the patches that `PatchMasking` of keras_attn masks outside of training."""
    import torch

    channels, count = inputs.shape[1:3]
    rows = 1 if channel_consistent_masking else channels
    noise = np.random.default_rng(0).random((rows, count), "float32")
    rank = noise.argsort(-1).argsort(-1)
    masked = torch.tensor(rank >= int(count * (1 - mask_ratio))).expand(*inputs.shape[:3])
    return inputs.masked_fill(masked[..., None], mask_value), masked.float()


def write(model, config, file):
    """Compute the outputs of a model, and write them with the inputs."""
    import torch

    inputs = sample_inputs(config)
    with torch.no_grad():
        arguments = {k: torch.tensor(v) for k, v in their_inputs(inputs, config).items()}
        outputs = model.eval()(**arguments)
        outputs = main_output(outputs, last_tokens(inputs, config), config)
        outputs = outputs.numpy()
    width = outputs.shape[-1]
    columns = np.unique(np.linspace(0, width - 1, min(width, MAX_COLUMNS)).astype("int64"))
    np.savez_compressed(
        file,
        outputs=outputs[..., columns],
        columns=columns,
        mask=real_outputs(inputs, outputs, config),
        **{f"input_{name}": value for name, value in inputs.items()},
    )


def main(folder, file):
    """Write the outputs of a folder."""
    write(*load(folder), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
