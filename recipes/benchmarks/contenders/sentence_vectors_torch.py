"""Sentence encoders of sentence-transformers, and its vectors, for `sentence_vectors`:

    python -m recipes.benchmarks.contenders.sentence_vectors_torch

Each line of the input is a request in JSON, each line of the output the answer: "make" writes
random encoders to a folder, "encode" writes the vectors of texts with each prompt to a file, and
"time" gives the seconds for all texts. It needs torch, transformers and sentence-transformers.
"""

import json
import pathlib
import sys
import time

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

NOISE = 0.1
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 40}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 160}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##tion", "query", "passage"]


def make(folder, texts, encoders):
    """Write the encoders, a dict of options by name, in folders of these names."""
    for seed, (name, options) in enumerate(encoders.items()):
        torch.manual_seed(seed)
        base = pathlib.Path(folder, "bases", name)
        write_base(base, options["base"], texts)
        transformer = Transformer(str(base))
        modes, width = options["pooling"], transformer.get_embedding_dimension()
        pooling = Pooling(width, modes, include_prompt=options.get("include_prompt", True))
        modules, width = [transformer, pooling], width * len(modes)
        for module in options.get("modules", []):
            modules.append(Normalize() if module == "Normalize" else dense(width, **module))
            width = width if module == "Normalize" else module["units"]
        settings = {k: options.get(k) for k in ("prompts", "default_prompt_name", "truncate_dim")}
        encoder = SentenceTransformer(modules=modules, device="cpu", **settings)
        encoder.save(str(pathlib.Path(folder, name)))
        if "length_file" in options:
            path = pathlib.Path(folder, name, "sentence_bert_config.json")
            path.write_text(json.dumps(options["length_file"]))


def dense(width, units, activation, bias=True, use_residual=False):
    """Return a module Dense from `width` to `units` numbers."""
    function = getattr(torch.nn, activation)()
    return Dense(width, units, bias=bias, activation_function=function, use_residual=use_residual)


def write_base(folder, class_name, texts):
    """Write a random model of a class of transformers and its tokenizer."""
    kind = getattr(transformers, class_name)
    if class_name in ("BertModel", "DistilBertModel"):
        tokenizer = word_pieces(texts)
        sizes = {**SIZES, "num_attention_heads": 3, "max_position_embeddings": 131}
        if class_name == "DistilBertModel":
            sizes = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40}
    else:
        # As in Qwen's, padding is the token that ends a text; GPT-2's texts have no end.
        ends = {"Qwen3Model": True, "MistralModel": True, "LlamaModel": True}
        tokenizer = byte_level(has_end=ends.get(class_name, False))
        sizes = {**SIZES, **HEADS}
        if class_name == "GPT2Model":
            sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 140}
        if class_name == "Qwen3Model":
            sizes["head_dim"] = 6
    model = kind(kind.config_class(vocab_size=len(tokenizer), **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * NOISE)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_pieces(texts):
    characters = sorted({c for text in texts for c in text + text.lower() if not c.isspace()})
    pieces = [*PIECES, *characters, *(f"##{c}" for c in characters)]
    tokens = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = ("[SEP]", tokens["[SEP]"]), ("[CLS]", tokens["[CLS]"])
    tokenizer.post_processor = processors.BertProcessing(*ends)
    tokenizer.add_special_tokens(PIECES[:5])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=120,
    )


def byte_level(has_end):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("a", "t")]
    tokens = [*letters, *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<unused>", "<end>"])
    processor = processors.ByteLevel(trim_offsets=False)
    if has_end:
        end = [("<end>", tokenizer.token_to_id("<end>"))]
        rules = {"single": "$A <end>", "pair": "$A <end> $B <end>", "special_tokens": end}
        processor = processors.Sequence([processor, processors.TemplateProcessing(**rules)])
    tokenizer.post_processor = processor
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<end>", eos_token="<end>", model_max_length=150
    )


def load(folder):
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    return SentenceTransformer(folder, device="cpu", model_kwargs=options)


def encode(folder, texts, num_prompted, file):
    """Write the vectors by default, and of the first texts with each prompt and of both kinds."""
    encoder, first = load(folder), texts[:num_prompted]
    vectors = {
        f"prompt {name}": encoder.encode(first, prompt_name=name) for name in encoder.prompts
    }
    vectors |= {"default": encoder.encode(texts), "query": encoder.encode_query(first)}
    np.savez(file, **vectors, document=encoder.encode_document(first))


def seconds(encoder, texts, batch_size):
    """Return the seconds for the vectors of all texts."""
    start = time.perf_counter()
    encoder.encode(texts, batch_size=batch_size, show_progress_bar=False)
    return time.perf_counter() - start


def main():
    encoders, answers, sys.stdout = {}, sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        action = request.pop("action")
        answer = None
        if action == "make":
            make(**request)
        elif action == "encode":
            encode(**request)
        elif action == "time":
            folder = request.pop("folder")
            if folder not in encoders:
                options = {"dtype": torch.float32}  # its own choice of an attention
                encoders[folder] = SentenceTransformer(folder, device="cpu", model_kwargs=options)
            answer = seconds(encoders[folder], **request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
