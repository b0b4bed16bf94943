"""Write folders of tokenizers that transformers made, with their ids of tricky lines.

    python tests/convert/make_golden_ids.py OUT [--count N]

It needs transformers 5 and sentencepiece, and no Keras; tests/convert/golden_ids is what it wrote.
"""

import argparse
import io
import json
import pathlib
import re
import sys

import numpy as np
import sentencepiece
import tokenizers
import transformers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "keras_attn/text/tokenizers")]

import recent_characters  # noqa: E402
import tricky_lines  # noqa: E402

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def bert(corpus, size):
    model = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer()
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=marks, limit_alphabet=size // 3, show_progress=False
    )
    model.train_from_iterator(corpus, trainer)
    return transformers.BertTokenizer(vocab=model.get_vocab(), do_lower_case=True)


def byte_level(corpus, size, marks=(), split=None):
    """Return the vocabulary and the merges that the library learns."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split is not None:
        model.pre_tokenizer = split
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(marks),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(corpus, trainer)
    learned = json.loads(model.to_str())["model"]
    return learned["vocab"], [tuple(pair) for pair in learned["merges"]]


def gpt2(corpus, size):
    vocabulary, merges = byte_level(corpus, size, ["<|endoftext|>"])
    return transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges)


def roberta(corpus, size):
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary, merges = byte_level(corpus, size, marks)
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges)


def qwen2(corpus, size):
    vocabulary, merges = byte_level(corpus, size)
    return transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges)


def llama3(corpus, size):
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    vocabulary, merges = byte_level(corpus, size, split=split)
    vocabulary["Ġunmerged"] = len(vocabulary)  # no merges make it
    model = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    model.pre_tokenizer, model.decoder = split, decoders.ByteLevel()
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    model.add_special_tokens([begin, end])
    model.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{begin} $A",
                pair=f"{begin} $A {begin}:1 $B:1",
                special_tokens=[(begin, model.token_to_id(begin))],
            ),
        ]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, bos_token=begin, eos_token=end
    )


def spm(corpus, size, folder, name, **options):
    model = io.BytesIO()
    # It takes no vocabulary without a piece for nearly every character. Long runs of one letter
    # have segmentations of equal probability.
    corpus = [line for line in corpus if max(line) < "ɐ" and len(line) < 40]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def t5(corpus, size, folder):
    marks = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    spm(corpus, size, folder, "spiece.model", normalization_rule_name="identity", **marks)
    return transformers.T5Tokenizer.from_pretrained(folder)


def marian(corpus, size, folder):
    half = len(corpus) // 2
    sides = {"source.spm": corpus[:half], "target.spm": corpus[half:]}
    pieces = ["</s>", "<unk>"]
    for name, lines in sides.items():
        model = spm(lines, size, folder, name, normalization_rule_name="identity")
        pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    pieces = [*dict.fromkeys([*pieces, ">>de<<", ">>pt_br<<"]), "<pad>"]
    content = json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False)
    (folder / "vocab.json").write_text(content, encoding="utf-8")
    return transformers.MarianTokenizer.from_pretrained(folder)


MAKERS = {
    "bert": lambda corpus, size, folder: bert(corpus, size),
    "gpt2": lambda corpus, size, folder: gpt2(corpus, size),
    "roberta": lambda corpus, size, folder: roberta(corpus, size),
    "qwen2": lambda corpus, size, folder: qwen2(corpus, size),
    "llama3": lambda corpus, size, folder: llama3(corpus, size),
    "t5": t5,
    "marian": marian,
}


def flat(rows):
    """Return rows of numbers as one array, and their lengths."""
    values = [value for row in rows for value in row]
    return np.array(values, "int32"), np.array([len(row) for row in rows], "int32")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=420)
    options = parser.parse_args()
    corpus = [line.decode(errors="ignore") for line in tricky_lines.tricky_lines(900)] * 2
    lines = tricky_lines.tricky_lines(options.count)[::2]
    rare = re.compile(f"[\0{recent_characters.RECENT}\U0002b820-\U0002b91f]")
    corpus = [rare.sub("", line) for line in corpus if line.strip()]
    texts = [line.decode(errors="replace") for line in lines]
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "lines.npz", *flat(lines))
    for name, make in MAKERS.items():
        folder = options.out / name
        tokenizer = make(corpus, 330, folder)
        tokenizer.save_pretrained(folder)
        for path in folder.glob("tokenizer.json"):
            content = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        rows = [tokenizer(text)["input_ids"] for text in texts]
        seconds = texts[1:] + texts[:1]
        pairs = [tokenizer(*pair)["input_ids"] for pair in zip(texts, seconds, strict=True)]
        decoded = [tokenizer.decode(row, skip_special_tokens=True).encode() for row in rows]
        np.savez_compressed(folder / "ids.npz", *flat(rows), *flat(pairs), *flat(decoded))
        print(name, len(tokenizer), sum(map(len, rows)))


if __name__ == "__main__":
    main()
