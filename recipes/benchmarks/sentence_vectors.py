"""Card of sentence vectors beside sentence-transformers: equal ones, and sentences a second.

    python -m recipes.benchmarks.sentence_vectors --oracle PYTHON [--encoder FOLDER]

PYTHON is that of an environment with sentence-transformers, in a process of its own. FOLDER is a
sentence encoder, such as all-MiniLM-L6-v2; its vectors are also those of the embedded server. With
names of random encoders the other rows of the card stay as they are.
"""

import contextlib
import datetime
import json
import pathlib
import statistics
import tempfile
import time
import urllib.request

import numpy as np
import tensorflow as tf

from keras_attn import export
from keras_attn.convert import from_hugging_face, to_hugging_face

from ..common import files
from ..common.machine import hardware, versions
from .card import card_parser, execute, positive
from .oracle_process import OracleProcess
from .serving_process import serving

ORACLE = f"{__package__}.contenders.sentence_vectors_torch"
TOLERANCE = 2e-6
BATCH, PROMPTED = 32, 40
COMMAND = f"python -m {__package__}.sentence_vectors --oracle PYTHON --encoder FOLDER"
WORDS = (
    "the cat sat on a mat while München naïve of light 3.14 don't Internationalization it's "
    "QUERY hello WORLD Foo-bar e-mail@x.org 100% été quick brown fox"
).split()
NORMALIZE = "Normalize"
# Random encoders with all poolings and options of the modules, on encoders and decoders.
ENCODERS = {
    "mean": {"base": "BertModel", "pooling": ["mean"]},
    "every pooling": {
        "base": "BertModel",
        "pooling": ["lasttoken", "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean"],
        "modules": [NORMALIZE],
        "prompts": {"query": "query: ", "passage": "passage: the cat "},
        "default_prompt_name": "query",
    },
    "without the prompt": {
        "base": "BertModel",
        "pooling": ["cls", "max", "weightedmean"],
        "include_prompt": False,
        "modules": [{"units": 17, "activation": "Tanh"}, NORMALIZE],
        "prompts": {"query": "query: ", "x": "Represent the sentence for retrieval: "},
        "default_prompt_name": "x",
        "truncate_dim": 11,
    },
    "residual layers": {
        "base": "BertModel",
        "pooling": ["mean"],
        "modules": [
            NORMALIZE,
            {"units": 24, "activation": "GELU", "use_residual": True},
            {"units": 31, "activation": "Identity", "use_residual": True, "bias": False},
            {"units": 7, "activation": "ReLU"},
        ],
        "truncate_dim": 5,
    },
    "old length, lower case": {
        "base": "DistilBertModel",
        "pooling": ["mean_sqrt_len_tokens", "cls"],
        "modules": [{"units": 19, "activation": "Sigmoid"}],
        "prompts": {"document": "Document: "},
        "default_prompt_name": "document",
        "length_file": {"max_seq_length": 33, "do_lower_case": True},
    },
    "Qwen3, last token": {
        "base": "Qwen3Model",
        "pooling": ["lasttoken"],
        "modules": [NORMALIZE],
        "prompts": {"query": "Instruct: find\nQuery:"},
    },
    "Llama, without the prompt": {
        "base": "LlamaModel",
        "pooling": ["mean", "lasttoken"],
        "include_prompt": False,
        "modules": [{"units": 9, "activation": "SiLU"}],
        "prompts": {"query": "q: "},
        "default_prompt_name": "query",
    },
    "Mistral, weighted": {
        "base": "MistralModel",
        "pooling": ["weightedmean"],
        "modules": [NORMALIZE],
        "truncate_dim": 16,
    },
    "GPT-2, weighted": {
        "base": "GPT2Model",
        "pooling": ["weightedmean", "lasttoken"],
        "modules": [NORMALIZE],
        "prompts": {"query": "q: "},
        "default_prompt_name": "query",
    },
}
METHOD = (
    "Vectors of {sentences} lines of 1 to 2,000 words, cut at the length of each encoder, by "
    "default, and of the first {prompted} with each prompt. Random "
    "encoders have all poolings and options of modules. "
    "**exported** is the largest difference of the functions that a SavedModel has from "
    "sentence-transformers, over the largest number; {tolerance:.0e} is allowed. **written** is "
    "that of the folder of `to_hugging_face`, which sentence-transformers reads. **served** is the "
    "embedded server over REST, in requests of {batch} lines. Sentences a second are medians of "
    "{repetitions} passes over {timed} lines of 1 to 60 words, taken in turn on all cores."
)


class Oracle(OracleProcess):
    """The process with sentence-transformers."""

    def encode(self, folder, texts, file):
        """Return the vectors of texts, a dict of arrays."""
        options = {"texts": texts, "num_prompted": PROMPTED, "file": str(file)}
        self("encode", folder=str(folder), **options)
        with np.load(file) as arrays:
            return dict(arrays)


def lines(count, most, seed=5):
    """Return texts whose numbers of words are spread from 1 to `most` by equal factors."""
    random = np.random.default_rng(seed)
    sizes = np.geomspace(1, most, count).round().astype(int)
    return [" ".join(random.choice(WORDS, size)) for size in random.permutation(sizes)]


def difference(theirs, ours):
    """Return the largest difference over the largest number of all arrays."""
    if theirs.keys() != ours.keys() or any(theirs[k].shape != ours[k].shape for k in theirs):
        return float("inf")
    return max(float(abs(theirs[k] - ours[k]).max() / abs(theirs[k]).max()) for k in theirs)


def exported(embedder, texts, names):
    """Return the vectors of the functions of an export, as `Oracle.encode` does."""
    functions = embedder.signatures
    calls = {"default": functions["serving_default"]}
    calls |= {name: functions[f"embed_{name}"] for name in ("query", "document")}
    vectors = {}
    for name in names:
        prompt = [[name.removeprefix("prompt ")]] if name not in calls else []
        function = calls.get(name, functions["embed"])
        chosen = texts if name == "default" else texts[:PROMPTED]
        parts = [
            function(*map(tf.constant, [chosen[i : i + BATCH], *prompt]))["features"].numpy()
            for i in range(0, len(chosen), BATCH)
        ]
        vectors[name] = np.concatenate(parts)
    return vectors


def compare(oracle, folder, texts, scratch):
    """Return the differences of an encoder, exported and written back, and both its parts."""
    theirs = oracle.encode(folder, texts, scratch / "vectors.npz")
    model, tokenizer = from_hugging_face(folder)
    embedder = export.SentenceEmbedder(model, tokenizer)
    row = {"exported": difference(theirs, exported(embedder, texts, theirs))}
    with tempfile.TemporaryDirectory(dir=scratch) as written:
        to_hugging_face(model, f"{written}/out", tokenizer=tokenizer)
        again = oracle.encode(f"{written}/out", texts, scratch / "vectors.npz")
    return {**row, "written": difference(theirs, again)}, theirs, (model, tokenizer)


def ask(server, texts, **request):
    """Return the vectors of the embedded server."""
    rows = []
    for start in range(0, len(texts), BATCH):
        inputs = {"text": texts[start : start + BATCH], **request.get("inputs", {})}
        body = {"signature_name": request.get("signature", "embed"), "inputs": inputs}
        call = urllib.request.Request(server.url(":predict"), json.dumps(body).encode())
        with urllib.request.urlopen(call) as answer:
            rows += json.load(answer)["outputs"]
    return np.array(rows, "float32")


def serve(oracle, folder, parts, theirs, texts, arguments, scratch):
    """Return the difference of the served vectors, and the seconds of both in turn."""
    model, tokenizer = parts
    export.saved_model(model, scratch / "export", tokenizer=tokenizer)
    timed = lines(arguments.timed, 60)
    with serving(scratch / "export", scratch / "server.log") as server:
        ours = {
            "default": ask(server, texts),
            "prompt query": ask(server, texts[:PROMPTED], inputs={"prompt": ["query"]}),
            "document": ask(server, texts[:PROMPTED], signature="embed_document"),
        }
        served = difference({name: theirs[name] for name in ours}, ours)
        seconds = {"ours": [], "theirs": []}
        for _ in range(arguments.repetitions + 1):  # the first pass warms up
            start = time.perf_counter()
            ask(server, timed)
            seconds["ours"].append(time.perf_counter() - start)
            request = {"folder": str(folder), "texts": timed, "batch_size": BATCH}
            seconds["theirs"].append(oracle("time", **request))
    rates = {name: len(timed) / statistics.median(each[1:]) for name, each in seconds.items()}
    return {"served": served, "sentences_per_second": rates}


def main():
    parser = card_parser("sentence_vectors", __doc__.splitlines()[0], repetitions=5)
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with its packages")
    parser.add_argument("--random", nargs="*", choices=ENCODERS, default=list(ENCODERS))
    parser.add_argument("--encoder", metavar="FOLDER", help="a sentence encoder to serve, too")
    parser.add_argument("--sentences", type=positive, default=400, help="default: %(default)s")
    parser.add_argument("--timed", type=positive, default=256, help="default: %(default)s")
    arguments = parser.parse_args()
    oracle, rows, served = Oracle(arguments.oracle, ORACLE), {}, {}
    texts = lines(arguments.sentences, 2000)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(oracle):
        scratch = pathlib.Path(folder)
        chosen = {name: ENCODERS[name] for name in arguments.random}
        oracle("make", folder=folder, texts=texts, encoders=chosen)
        for name in chosen:
            rows[name], *_ = compare(oracle, scratch / name, texts, scratch)
            print(name, rows[name], flush=True)
        if arguments.encoder:
            name = pathlib.Path(arguments.encoder).name
            rows[name], theirs, parts = compare(oracle, arguments.encoder, texts, scratch)
            served = serve(oracle, arguments.encoder, parts, theirs, texts, arguments, scratch)
            print(name, rows[name], served, flush=True)
    out = pathlib.Path(arguments.out)
    card = out / f"{arguments.name}.json"
    known = json.loads(card.read_text()) if card.is_file() else {"rows": {}, "served": {}}
    content = {
        "method": METHOD.format(
            **vars(arguments), tolerance=TOLERANCE, batch=BATCH, prompted=PROMPTED
        ),
        "command": COMMAND,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions("keras_attn", "tensorflow"),
        "rows": {**known["rows"], **rows},
        "served": served or known["served"],
    }
    out.mkdir(parents=True, exist_ok=True)
    files.write_json(card, content)
    files.write(out / f"{arguments.name}.md", markdown(content))
    largest = max(
        max(row.values()) for row in [*rows.values(), {"served": served.get("served", 0)}]
    )
    return int(not largest <= TOLERANCE)


def markdown(content):
    """Return the card in Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    texts = ["# Sentence vectors beside sentence-transformers", "", content["method"], ""]
    texts += [f"- Command: `{content['command']}`", f"- Date: {content['date']}"]
    texts += [f"- Hardware: {content['hardware']}", f"- Versions: {packages}", ""]
    texts += ["| encoder | exported | written |", "| --- | --: | --: |"]
    texts += [
        f"| {name} | {row['exported']:.1e} | {row['written']:.1e} |"
        for name, row in content["rows"].items()
    ]
    if served := content["served"]:
        ours, theirs = (served["sentences_per_second"][name] for name in ("ours", "theirs"))
        texts += ["", f"Served vectors of the last one differ by {served['served']:.1e}. "]
        texts[-1] += f"The server gives {ours:.0f} sentences a second, sentence-transformers "
        texts[-1] += f"{theirs:.0f}."
    return "\n".join(texts) + "\n"


if __name__ == "__main__":
    execute(main)
