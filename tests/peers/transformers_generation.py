"""Texts that Hugging Face's transformers 5.23 generates from made-up checkpoints:

    python transformers_generation.py RESULTS.npz

needs torch and transformers, and nothing of this project but files of tests/support.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))

import generation_cases  # noqa: E402

BATCH = 50


def generated(model, tokenizer, texts, **options):
    """Return the ids after the first one, scores, and decoded texts."""
    inputs = tokenizer(
        texts,
        return_tensors="pt",
        padding=True,
        truncation=True,
        max_length=generation_cases.MAX_SOURCE,
    )
    inputs.pop("token_type_ids", None)
    output = model.generate(
        **inputs,
        **options,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    ids = output.sequences[:, 1:]
    scores = (
        output.sequences_scores if "sequences_scores" in output else greedy_scores(model, output)
    )
    decoded = tokenizer.batch_decode(
        output.sequences, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return ids.numpy(), scores.numpy(), decoded


def greedy_scores(model, output):
    """Return the sums of log-probabilities up to the end token; forced tokens count 0."""
    ids, end = output.sequences[:, 1:], model.config.eos_token_id
    processed = torch.stack(output.scores, 1)
    renormalize = model.generation_config.renormalize_logits
    logits = processed if renormalize else torch.stack(output.logits, 1)
    log_probs = torch.log_softmax(logits, -1).gather(2, ids[..., None])[..., 0]
    log_probs[torch.isfinite(processed).sum(-1) == 1] = 0.0
    is_end = (ids == end).long()
    return torch.where(is_end.cumsum(1) - is_end == 0, log_probs, 0.0).sum(1)


def causal(name):
    """Return continuations by greedy decoding, their scores, and distributions of a sample."""
    rows, scores, distributions = [], [], []
    with tempfile.TemporaryDirectory() as parent:
        folder = f"{parent}/folder"
        generation_cases.write_causal(name, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        for text in generation_cases.texts(generation_cases.PROMPTS):
            ids = tokenizer(text, return_tensors="pt").input_ids[:, : generation_cases.MAX_PROMPT]
            how = {"attention_mask": torch.ones_like(ids), "return_dict_in_generate": True}
            output = model.generate(ids, **how, do_sample=False, output_logits=True)
            new = output.sequences[0, ids.shape[1] :]
            steps = torch.log_softmax(torch.cat(output.logits), -1)
            scores.append(steps.gather(1, new[:, None]).sum())
            rows.append(np.pad(new, (0, generation_cases.NEW - len(new)), constant_values=-1))
            options = {**generation_cases.SAMPLING, "max_new_tokens": 1, "output_scores": True}
            output = model.generate(ids, **how, **options)
            distributions.append(torch.softmax(output.scores[0][0], -1).numpy())
    return {"ids": np.array(rows), "scores": np.array(scores), "p": np.array(distributions)}


def by_options(name):
    """Return the new ids of each prompt, for each of the options of a model."""
    is_causal = name in generation_cases.CAUSAL
    kind = transformers.AutoModelForCausalLM if is_causal else transformers.AutoModelForSeq2SeqLM
    rows = {}
    with tempfile.TemporaryDirectory() as parent:
        folder = f"{parent}/folder"
        own = generation_cases.write_for_options(name, folder)
        how = {"dtype": torch.float32, "attn_implementation": "eager"}
        model = kind.from_pretrained(folder, **how).eval()
        for number, options in enumerate(generation_cases.OPTIONS[name]):
            for prompt in generation_cases.OPTION_PROMPTS:
                ids = torch.tensor([prompt])
                given = {"attention_mask": torch.ones_like(ids), "do_sample": False}
                new = model.generate(ids, **given, **own, **options)[0]
                rows[f"{number}_{len(prompt)}"] = new[len(prompt) if is_causal else 1 :].numpy()
    return rows


def main(path):
    arrays, texts = {}, generation_cases.texts()
    for name in generation_cases.OPTIONS:
        arrays.update({f"{name}_options/{key}": ids for key, ids in by_options(name).items()})
    for name in generation_cases.CAUSAL:
        arrays.update({f"{name}/{key}": array for key, array in causal(name).items()})
    for name in generation_cases.CASES:
        with tempfile.TemporaryDirectory() as parent:
            folder = f"{parent}/folder"
            generation_cases.write(name, folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            ).eval()
            for kind, options in (("beam", {}), ("greedy", {"num_beams": 1})):
                batches = [
                    generated(model, tokenizer, texts[i : i + BATCH], **options)
                    for i in range(0, len(texts), BATCH)
                ]
                key = f"{name}_{kind}"
                width = max(ids.shape[1] for ids, _, _ in batches)
                pad = model.config.pad_token_id
                arrays[f"{key}/ids"] = np.concatenate(
                    [
                        np.pad(ids, [[0, 0], [0, width - ids.shape[1]]], constant_values=pad)
                        for ids, _, _ in batches
                    ]
                )
                arrays[f"{key}/scores"] = np.concatenate([scores for _, scores, _ in batches])
                arrays[f"{key}/texts"] = np.array([x for *_, decoded in batches for x in decoded])
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
