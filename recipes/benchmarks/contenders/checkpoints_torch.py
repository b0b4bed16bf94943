"""Checkpoints of transformers and what it computes with them, for `checkpoints`:

    python -m recipes.benchmarks.contenders.checkpoints_torch make|read TASKS.json

`make` writes random checkpoints, their outputs and what they generate; `read` compares folders
that keras_attn wrote. It needs torch and transformers, and imports nothing of Keras.
"""

import copy
import json
import pathlib
import sys
import traceback

import numpy as np
import torch
import transformers

# By its own name: the package imports Keras.
sys.path.append(str(pathlib.Path(__file__).parents[3] / "keras_attn/convert"))

import golden_writer  # noqa: E402

NOISE = 0.15
NEW, END, BEAMS = 9, 7, 3
PROMPTS = 7, 4  # lengths
ROUNDING, MOVES = 2.0**-24, 8  # of a weight in float32


def make(folder, class_name, options, is_bare):
    """Write a checkpoint into `folder/checkpoint`, its outputs, and what it generates.

    A bare one has a `config.json` of the given options alone.
    """
    folder = pathlib.Path(folder)
    kind = golden_writer.class_of(class_name)
    torch.manual_seed(int(folder.name, 16) % 2**31)
    model = kind(kind.config_class(**options))
    add_noise(model)
    model.save_pretrained(folder / "checkpoint")
    if is_bare:
        kept = {"model_type": model.config.model_type, "architectures": [class_name], **options}
        (folder / "checkpoint/config.json").write_text(json.dumps(kept))
    model, config = golden_writer.load(folder / "checkpoint")
    inputs = sample_inputs(config)
    outputs, mask = compute(model.eval(), config, inputs)
    rounding = rounding_of(model, config, inputs, outputs, mask)
    named = {f"input_{name}": value for name, value in inputs.items()}
    if generates(model):
        try:
            generated = generate(model, config, inputs)
        except Exception as error:  # whatever transformers raises
            generated = {"failed": sentence(error)}
        (folder / "generated.json").write_text(json.dumps(generated))
    file = folder / "outputs.npz"  # last: it is complete
    np.savez(file, outputs=outputs, mask=mask, rounding=rounding, **named)


def add_noise(model):
    """Add noise to each parameter and each buffer that is saved, tied ones once."""
    tensors = {x.data_ptr(): x for x in model.state_dict().values() if x.is_floating_point()}
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.add_(NOISE * torch.randn_like(tensor))
        if model.config.model_type == "reformer":  # of two biases version 5 adds one, old ones both
            model.lm_head.bias.copy_(model.lm_head.decoder.bias)


def sample_inputs(config):
    """Return the inputs of a golden file; a text of a causal model also ends with padding."""
    inputs = golden_writer.sample_inputs(config)
    if pads_causal(config):
        ids = inputs["token_ids"]
        ids[1, real_length(ids) :] = config.pad_token_id or 0
    return inputs


def pads_causal(config):
    """Return True for a language model of texts that may end with padding."""
    return golden_writer.is_causal(config) and not golden_writer.reads_last(config)


def real_length(ids):
    return ids.shape[1] * 2 // 3


def compute(model, config, inputs):
    """Return the outputs, and a mask of those that padding does not touch."""
    arguments = golden_writer.their_inputs(inputs, config)
    is_padded = pads_causal(config)
    if is_padded:
        mask = np.ones(inputs["token_ids"].shape, "int64")
        mask[1, real_length(mask) :] = 0
        arguments["attention_mask"] = mask
    with torch.no_grad():
        arguments = {name: torch.tensor(value) for name, value in arguments.items()}
        last = golden_writer.last_tokens(inputs, config)
        outputs = golden_writer.main_output(model(**arguments), last, config).numpy()
    real = golden_writer.real_outputs(inputs, outputs, config)
    return outputs, real & (mask == 1) if is_padded else real


def rounding_of(model, config, inputs, outputs, mask):
    """Return the largest difference that rounding makes.

    It is that of the outputs from those in float64, or of those from others in float64, of weights
    that are up to a rounding away: where little decides, one float32 result may be near by luck.
    """
    exact = double_outputs(model, config, inputs)[mask]
    moved = (double_outputs(model, config, inputs, ROUNDING)[mask] for _ in range(MOVES))
    return max(difference(x, exact) for x in (outputs[mask], *moved))


def double_outputs(model, config, inputs, distance=0.0):
    """Return the outputs in float64, of weights that are moved by up to a relative distance."""
    wide = {k: x.astype("float64") if x.dtype == np.float32 else x for k, x in inputs.items()}
    moved = copy.deepcopy(model).double()
    with torch.no_grad():
        for weight in moved.parameters() if distance else ():
            weight.mul_(1 + distance * (2 * torch.rand_like(weight) - 1))
    try:
        return compute(moved, config, wide)[0]
    except RuntimeError:  # a part of some models is in float32 whatever the parameters are
        return compute(model, config, inputs)[0]


def difference(outputs, expected):
    """Return the largest difference, of the largest number that is expected."""
    return float(np.abs(outputs - expected).max() / np.abs(expected).max())


def generates(model):
    endings = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel")
    return type(model).__name__.endswith(endings)


def generate(model, config, inputs):
    """Return prompts, options, and the new ids by greedy decoding and by a beam search."""
    options = {"max_new_tokens": NEW, "eos_token_id": END}
    options["pad_token_id"] = config.pad_token_id or 0
    if config.is_encoder_decoder:
        start = config.decoder_start_token_id
        options["decoder_start_token_id"] = 0 if start is None else start
        kept = model.generation_config.to_dict()  # what transformers adds to the options
        names = ("forced_bos_token_id", "forced_eos_token_id")
        options |= {name: kept[name] for name in names if kept.get(name) is not None}
        rows = [row[row != config.pad_token_id].tolist() for row in inputs["source_ids"]]
    else:
        rows = [inputs["token_ids"][i, :n].tolist() for i, n in enumerate(PROMPTS)]
    generated = {"prompts": rows, "options": options}
    for name, count in {"greedy": 1, "beams": BEAMS}.items():
        if count == 1 or config.is_encoder_decoder:
            strategy = transformers.GenerationConfig(
                **options, num_beams=count, use_cache=has_capacity(config)
            )
            generated[name] = [continuation(model, row, strategy) for row in rows]
    return generated


def has_capacity(config):
    """Return True for experts that drop tokens: of a whole text in each step without a cache."""
    return hasattr(config, "expert_capacity")


def continuation(model, row, options):
    ids, cache = torch.tensor([row]), {}
    if has_capacity(model.config):
        # That of transformers has as many layers as the encoder.
        sides = transformers.DynamicCache(), transformers.DynamicCache()
        cache = {"past_key_values": transformers.EncoderDecoderCache(*sides)}
    mask = torch.ones_like(ids)
    new = model.generate(ids, attention_mask=mask, generation_config=options, **cache)[0]
    return new[1 if model.config.is_encoder_decoder else len(row) :].tolist()


def read(folder, written):
    """Return the largest difference of the outputs of a written folder from those of before."""
    with np.load(pathlib.Path(folder, "outputs.npz")) as file:
        arrays = dict(file)
    model, config = golden_writer.load(written)
    content = json.loads(pathlib.Path(folder, "checkpoint/config.json").read_text())
    if content["architectures"] == ["ElectraModel"]:
        model.pooler = None  # with equal widths it becomes a `BertModel`, whose pooler is zeros
    inputs = {k.removeprefix("input_"): x for k, x in arrays.items() if k.startswith("input_")}
    outputs, _ = compute(model.eval(), config, inputs)
    return difference(outputs[arrays["mask"]], arrays["outputs"][arrays["mask"]])


def sentence(error):
    """Return the error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def main(action, tasks):
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    answers = []
    for task in json.loads(pathlib.Path(tasks).read_text()):
        try:
            answers.append({"answer": {"make": make, "read": read}[action](**task)})
        except (Exception, SystemExit) as error:  # whatever transformers raises
            traceback.print_exc(limit=-3)
            answers.append({"failed": sentence(error)})
    pathlib.Path(tasks).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
