"""A process that holds one opened export: `python -m keras_attn.export.measured_process`.

It reads a request in each line of its input and writes an answer in a line, both JSON; it ends when
its input ends. Engines in one process would slow each other by threads that wait for work.
"""

import contextlib
import json
import os
import subprocess
import sys
import time

import numpy as np

from keras_attn import text
from keras_attn.export._litert.files import open_file, read_record, run_signature
from keras_attn.export.decoding_record import Decoding, read_decoding
from keras_attn.export.saved_model_files import COMPILATION_FILE
from keras_attn.export.versions import newest_version
from keras_attn.ops.checks import check_paths


class ExportProcess:
    """An export opened in a process of its own, with a number of threads.

    Args:
        path, form: as `form_of` returns them.
        threads: int.
        tokenizer: path of the file, for exports that read ids.
        max_length: int. Longest answer in tokens, where the export leaves it open.
        beams, length_penalty: of the beam search, where the export leaves it open.
    """

    def __init__(self, path, form, threads, tokenizer, max_length, beams=1, length_penalty=0.0):
        options = {"path": path, "form": form, "threads": threads, "tokenizer": tokenizer}
        if form == "CTranslate2":
            options.update(beams=beams, length_penalty=length_penalty)
        variables = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        )
        self._write({**options, "max_length": max_length})

    def ask(self, lines):
        """Return the answers to lines, and the seconds that they took."""
        self._write(lines)
        answer = self.read()
        return answer["answers"], answer["seconds"]

    def read(self):
        """Return what the process writes next; raise a `ValueError` if it is that it cannot."""
        line = self._process.stdout.readline()
        if not line:
            raise ValueError(f"Its process ended with exit code {self._process.wait()}.")
        message = json.loads(line)
        if "error" in message:
            raise ValueError(message["error"])
        return message

    def stop(self):
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _write(self, request):
        with contextlib.suppress(BrokenPipeError):  # `read` says how the process has ended
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()


def main():
    """Open the export of the first line, then answer all others."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        for message in _run(map(json.loads, sys.stdin)):
            print(json.dumps(message), file=answers, flush=True)
    except Exception as error:  # any engine's, and shown beside the other forms' times
        reason = " ".join(str(error).split()) or type(error).__name__
        print(json.dumps({"error": reason}), file=answers, flush=True)


def _run(requests):
    options = next(requests)
    start = time.perf_counter()
    answer, precision = OPENERS[options.pop("form")](**options)
    yield {"seconds": time.perf_counter() - start, "precision": precision}
    for lines in requests:
        start = time.perf_counter()
        answers = answer(lines)
        yield {"answers": answers, "seconds": time.perf_counter() - start}


# Outputs of text signatures that are an answer, by their names.
ANSWERS = ("translation", "continuation", "label")


def form_of(path):
    """Return the files of an export and its form, a key of `OPENERS`.

    Args:
        path: a SavedModel's version or the directory of its versions, a file of ONNX or LiteRT, or
            a directory for CTranslate2.

    Raises:
        ValueError: if `path` is none of these.
    """
    check_paths(path=path)
    path = os.fspath(path)
    if not os.path.exists(path):
        raise ValueError(f"There is no such file or directory. Received: {path!r}.")
    endings = {".onnx": "ONNX", ".tflite": "LiteRT"}
    if os.path.isfile(path) and os.path.splitext(path)[1] in endings:
        return path, endings[os.path.splitext(path)[1]]
    if os.path.isfile(os.path.join(path, "model.bin")):
        return path, "CTranslate2"
    newest = newest_version(path) if os.path.isdir(path) else None
    if newest is not None and os.path.isfile(os.path.join(newest, "saved_model.pb")):
        is_compiled = os.path.exists(os.path.join(newest, COMPILATION_FILE))
        return newest, "compiled SavedModel" if is_compiled else "SavedModel"
    raise ValueError(
        "An export must be a SavedModel's directory, a file that ends in .onnx or .tflite, or a "
        f"directory for CTranslate2. Received: {path!r}."
    )


def decoding_of(path, form):
    """Return how an export decodes; None where it is chosen at each call, or not recorded."""
    if form == "ONNX":
        return Decoding()
    if form == "LiteRT":
        recorded = read_record(path)[0].get("decoding")
        return None if recorded is None else Decoding(**recorded)
    return None if form == "CTranslate2" else read_decoding(path)


def open_saved_model(path, threads, tokenizer, max_length):
    """Open a SavedModel, whose tokenizer and longest answer are in its graph."""
    import tensorflow as tf

    with contextlib.suppress(ImportError):
        import tensorflow_text  # noqa: F401  registers the operations of a tokenizer

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    loaded = tf.saved_model.load(path)  # kept by `answer`, since a signature does not keep it
    function = loaded.signatures["serving_default"]
    answer_names = [name for name in ANSWERS if name in function.structured_outputs]
    if not answer_names or list(function.structured_input_signature[1]) != ["text"]:
        raise ValueError("The SavedModel has no signature from a text to a text.")

    def answer(lines):
        outputs = loaded.signatures["serving_default"](text=tf.constant(lines))
        return [line.decode(errors="replace") for line in outputs[answer_names[0]].numpy()]

    return answer, None


def open_onnx(path, threads, tokenizer, max_length):
    """Open a whole decoding loop in ONNX Runtime; the longest answer is in its graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    outputs = [x.name for x in session.get_outputs()]
    if "ids" not in outputs:
        raise ValueError(f'The ONNX file must be of what="greedy". Received: outputs {outputs}.')

    def run(tensors):
        feed = {name: x for name, x in tensors.items() if name in names}
        return session.run(["ids"], feed)[0]

    return _answer_by_ids(run, _load(tokenizer), "token_ids" in names), None


def open_litert(path, threads, tokenizer, max_length):
    """Open the signature "generate" of a LiteRT file; the longest answer is in its graph."""
    interpreter = open_file(path, threads)
    signatures = interpreter.get_signature_list()
    if "generate" not in signatures or "ids" not in signatures["generate"]["outputs"]:
        raise ValueError(
            'The LiteRT file must have the signature "generate" of ids. '
            f"Received: signatures {sorted(signatures)}."
        )
    specs = interpreter.get_signature_runner("generate").get_input_details()
    random = np.random.default_rng(0)  # the same texts in each measurement

    def run(tensors):
        if "noise" in specs:
            size = specs["noise"]["shape_signature"][0], len(next(iter(tensors.values())))
            tensors["noise"] = random.uniform(size=size).astype("float32")
        return run_signature(interpreter, "generate", tensors)["ids"]

    answer = _answer_by_ids(run, _load(tokenizer), "token_ids" in specs)
    return answer, read_record(path)[0].get("precision")


def _answer_by_ids(run, tokenizer, reads_prompt):
    """Return the function from lines to answers, of a `run` from a dict of arrays to ids."""

    def answer(lines):
        rows = _encode(tokenizer, lines, with_end=not reads_prompt)
        lengths = [len(row) for row in rows]
        width = max(1, *lengths)
        ids = [[*row, *[0] * (width - len(row))] for row in rows]
        tensors = {"token_ids" if reads_prompt else "source_ids": ids}
        tensors["lengths" if reads_prompt else "source_lengths"] = lengths
        ids = run({name: np.asarray(x, "int32") for name, x in tensors.items()})
        answers = _decode(tokenizer, ids, rows if reads_prompt else None)
        ends = 0 if reads_prompt else len(tokenizer.template.end)
        has_text = [length > ends for length in lengths]
        return [x if is_text else "" for x, is_text in zip(answers, has_text, strict=True)]

    return answer


def open_ctranslate2(path, threads, tokenizer, max_length, beams=1, length_penalty=0.0):
    """Open a decoder of CTranslate2, in the precision in which its weights are stored.

    Its score of a hypothesis of n tokens is log p / n^length_penalty.
    """
    import ctranslate2

    own = os.path.join(path, "tokenizer.model")
    tokenizer = _load(own if os.path.isfile(own) else tokenizer)
    reads_prompt = os.path.isfile(os.path.join(path, "vocabulary.json"))
    engine = ctranslate2.Generator if reads_prompt else ctranslate2.Translator
    engine = engine(path, compute_type="default", intra_threads=threads)
    search = {"beam_size": beams, "length_penalty": length_penalty}
    names = _vocabulary(path, "source")
    id_of = {token: i for i, token in enumerate(_vocabulary(path, "target"))}

    def answer(lines):
        rows = _encode(tokenizer, lines, with_end=False)
        tokens = [[names[i] for i in row] for row in rows]
        if reads_prompt:
            written = _continue(engine, tokens, max_length, search)
        else:
            lengths = {"min_decoding_length": 0, "max_decoding_length": max_length}
            results = engine.translate_batch(tokens, **search, **lengths)
            written = [result.hypotheses[0] for result in results]
        ids = [[id_of.get(token, tokenizer.unk_id) for token in row] for row in written]
        return _decode(tokenizer, ids, rows if reads_prompt else None)

    return answer, engine.compute_type


def _vocabulary(path, side):
    """Return the names of a directory's ids, pieces or numbers, on one side."""
    kinds = f"{side}_vocabulary.json", "shared_vocabulary.json", "vocabulary.json"
    files = [os.path.join(path, kind) for kind in kinds]
    with open(next(filter(os.path.isfile, files), files[-1]), encoding="utf-8") as file:
        return json.load(file)


def _continue(generator, prompts, max_length, search):
    """Return what a generator of CTranslate2 adds to each prompt."""
    written = [[] for _ in prompts]
    # Of prompts of several lengths in a batch, CTranslate2 counts the longer ones' ends as answers.
    for length in {len(prompt) for prompt in prompts if prompt}:
        rows = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
        results = generator.generate_batch(
            [prompts[i] for i in rows],
            **search,
            max_length=max_length,
            include_prompt_in_result=False,
        )
        for i, result in zip(rows, results, strict=True):
            written[i] = result.sequences[0]
    return written


OPENERS = {
    "SavedModel": open_saved_model,
    "compiled SavedModel": open_saved_model,
    "ONNX": open_onnx,
    "LiteRT": open_litert,
    "CTranslate2": open_ctranslate2,
}


def _load(path):
    if path is None:
        raise ValueError("The export reads ids: `tokenizer` must be the file of its tokenizer.")
    return text.load(path)


def _encode(tokenizer, lines, with_end):
    """Return a list of ids for each line, with the special tokens before it, and after it too."""
    ids, lengths = (x.numpy() for x in tokenizer.encode(lines, end=with_end))
    return [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]


def _decode(tokenizer, rows, prompts):
    """Return the text of each row of ids, or what it adds to that of its prompt."""
    rows = [list(row) for row in rows]
    if prompts is None:
        return tokenizer.decode_as_strings(rows)
    # As in `TextGenerator.text`: alone, the first new piece would lose its space.
    whole = tokenizer.decode_as_strings([a + b for a, b in zip(prompts, rows, strict=True)])
    read = tokenizer.decode_as_strings(prompts)
    parts = zip(whole, read, prompts, strict=True)
    return [text[len(before) :] if prompt else "" for text, before, prompt in parts]


if __name__ == "__main__":
    main()
