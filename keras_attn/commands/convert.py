"""Convert a checkpoint of Hugging Face, or a model to one; write golden outputs beside it."""

import argparse
import json
import os
import sys
import warnings
import zipfile

from keras_attn import startup
from keras_attn.hints import download_hint

# The files of a run of `keras-attn fine-tune` beside its model.
_RUN_FILES = {"labels": "labels.json", "tokenizer": "tokenizer.model"}


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.folder == "to-hugging-face") != (options.target is not None):
        parser.error("to-hugging-face, and it alone, takes MODEL.keras and FOLDER")
    if options.export is not None and options.folder in ("golden", "to-hugging-face"):
        parser.error(f"{options.folder} writes no SavedModel: leave --export out")
    if (options.model_type or options.ignore) and options.folder in ("golden", "to-hugging-face"):
        parser.error(f"{options.folder} takes neither --model-type nor --ignore")
    if options.target is None and (options.labels or options.tokenizer):
        parser.error("--labels and --tokenizer are options of to-hugging-face")
    if options.export == "":
        parser.error("--export must be the path of a directory. Received: --export ''")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(options)
    except (ValueError, ImportError, OSError) as error:
        print(f"keras-attn convert: {error}", file=sys.stderr)
        return 2


def _run(options):
    if options.target is not None:
        return write_folder(options.out, options.target, options.labels, options.tokenizer)
    if options.folder == "golden":
        return write_golden_outputs(options.out)
    reading = {"model_type": options.model_type, "ignore": options.ignore}
    return convert(options.folder, options.out, options.export, **reading)


def _show_warning(message, category, *place):
    """Print a warning as one line, without the line of code that gave it."""
    print(f"keras-attn convert: {message}", file=sys.stderr)


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-attn convert",
        description=__doc__,
        epilog="`keras-attn convert golden FOLDER` computes outputs by transformers, "
        "which needs torch, and writes them into FOLDER: each later conversion compares. "
        "`keras-attn convert to-hugging-face MODEL.keras FOLDER` writes a checkpoint.",
    )
    parser.add_argument(
        "folder", help="the checkpoint's folder, or the word golden or to-hugging-face"
    )
    parser.add_argument(
        "out",
        help="the .keras file to write; after golden the folder, after to-hugging-face the file",
    )
    parser.add_argument("target", nargs="?", help="after to-hugging-face, the folder to write")
    parser.add_argument("--export", metavar="PATH", help="write a SavedModel to PATH/VERSION too")
    parser.add_argument(
        "--model-type", metavar="TYPE", help="the family, in place of that of config.json"
    )
    parser.add_argument(
        "--ignore",
        metavar="PATTERN",
        action="append",
        default=[],
        help="leave out tensors whose names match a pattern, such as 'cls.species.*'; "
        "may be repeated",
    )
    for name, content in (("labels", "the names of the classes"), ("tokenizer", "a tokenizer")):
        parser.add_argument(
            f"--{name}",
            metavar="FILE",
            help=f"of to-hugging-face, {content}; by default {_RUN_FILES[name]} beside MODEL.keras",
        )
    return parser


def convert(folder, path, export=None, **reading):
    """Convert a folder to a `.keras` file, and write a SavedModel if `export` is a path.

    The file appears complete or not at all: a process that is killed leaves an earlier one whole.
    `reading` are arguments of `from_hugging_face`.
    """
    if not path.endswith(".keras"):
        raise ValueError(f"The file to write must end in .keras. Received: path={path!r}.")
    if os.path.isdir(path):
        raise ValueError(f"The file to write is a directory. Received: path={path!r}.")
    _check_parent(path)
    if export is not None:
        _check_parent(export)
    _check_folder(folder)
    startup.import_library()
    from keras_attn.convert.hugging_face.conversion import from_hugging_face

    if export is not None:
        from keras_attn.export.versions import free_version

        _check_parent(free_version(export))
    model, tokenizer = from_hugging_face(folder, **reading)
    # Before the file appears: options may be refused.
    options = None if export is None else _export_options(folder, model, tokenizer)
    model.save(path)
    print(f"{path}: {type(model).__name__} of {model.count_params():,} weights")
    if export is not None:
        from keras_attn.export import saved_model  # needs TensorFlow, unlike the conversion

        print(saved_model(model, export, **options))
    return 0


def _check_folder(folder):
    """Refuse a checkpoint's folder that does not exist, without Keras."""
    if not os.path.exists(folder):
        raise ValueError(
            f"The folder does not exist.{download_hint(folder)} Received: folder={folder!r}."
        )


def _check_parent(path):
    """Refuse a path, before anything slow, in whose directory nothing can be written."""
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK):
        raise ValueError(
            f"Nothing can be written in {parent!r}: it is no directory, or not yours to change. "
            f"Received: path={path!r}."
        )


def _export_options(folder, model, tokenizer):
    """Return the arguments of `export.saved_model` for a model that reads texts."""
    from keras_attn.convert.generation_config import generation_options
    from keras_attn.convert.hugging_face.heads import ANSWERS, TAGS, head_of
    from keras_attn.generation.tokens import end_tokens, vocabulary_size
    from keras_attn.models import Classifier

    if isinstance(model, Classifier) and model.image_shape is None:
        return {"tokenizer": tokenizer, "labels": _labels(folder, model.num_classes, tokenizer)}
    if head_of(model) == TAGS and (labels := _labels(folder, model.head.units, tokenizer)):
        return {"tokenizer": tokenizer, "labels": labels}
    if head_of(model) == ANSWERS:
        return {"tokenizer": tokenizer}
    if not hasattr(model, "reads_prompt"):
        return {}
    options = generation_options(folder, is_encoder_decoder=not model.reads_prompt)
    if getattr(model, "memory", None) is not None:  # its export makes steps, and no texts
        options.pop("strategy", None)
    # Checkpoints keep GPT-2's default of 50256 also where their vocabulary is smaller.
    size = vocabulary_size(model)
    options["eos_id"] = [end for end in end_tokens(options["eos_id"]) if end < size] or -1
    lengths = model.max_length, options.get("max_length", 64)
    options["max_length"] = min(length for length in lengths if length is not None)
    return {"tokenizer": tokenizer, **options}


def _labels(folder, size, tokenizer):
    """Return the names of all classes; None if the folder lacks one, or there is no tokenizer."""
    from keras_attn.convert.hugging_face.heads import read_labels

    labels = read_labels(folder)
    return labels if tokenizer is not None and len(labels or ()) == size else None


def write_golden_outputs(folder):
    """Write the outputs of transformers into a checkpoint's folder."""
    _check_folder(folder)
    startup.import_library()
    from keras_attn.convert.golden import write_golden

    print(write_golden(folder))
    return 0


def write_folder(path, folder, labels=None, tokenizer=None):
    """Convert a `.keras` file to a folder of Hugging Face.

    Args:
        path: of the file.
        folder: path to write to.
        labels: path of a JSON file of the names of the classes, a list or an object with a list
            `labels`; None for `labels.json` beside the model, if it is there.
        tokenizer: path of a file that a tokenizer's `save` wrote; None for `tokenizer.model` beside
            the model, if it is there.
    """
    if not path.endswith(".keras") or not os.path.isfile(path):
        raise ValueError(f"The file to read must exist and end in .keras. Received: path={path!r}.")
    if not zipfile.is_zipfile(path):  # of such a file Keras says that it is not there
        raise ValueError(f"The file to read is cut, or no `.keras` file. Received: path={path!r}.")
    arguments = {}
    if (file := _run_file(path, "labels", labels)) is not None:
        arguments["labels"] = _read_names(file)
    file = _run_file(path, "tokenizer", tokenizer)
    if file is not None and not os.path.isfile(file):
        raise ValueError(f"The file for --tokenizer does not exist. Received: {file!r}.")
    startup.import_library()
    import keras

    from keras_attn.convert.hugging_face.families.family import output_vocabulary_size
    from keras_attn.convert.hugging_face.writing import to_hugging_face

    if file is not None:
        from keras_attn import text  # needs the packages of the tokenizers

        arguments["tokenizer"] = text.load(file)
    model = keras.models.load_model(path)
    model_type = to_hugging_face(model, folder, **arguments)
    names = " with ".join(["", " and ".join(name for name, x in arguments.items() if x)])
    print(f"{folder}: a checkpoint of {model_type}{names if any(arguments.values()) else ''}")
    if file is None and output_vocabulary_size(model):
        # transformers makes a tokenizer without words then, and says nothing.
        print(
            f"keras-attn convert: {folder} has no tokenizer, without which it reads no texts: give "
            "--tokenizer the file that the tokenizer's `save` wrote.",
            file=sys.stderr,
        )
    return 0


def _run_file(model, name, path):
    """Return the path of a file of a run; None for one that is neither given nor beside a model."""
    beside = os.path.join(os.path.dirname(model), _RUN_FILES[name])
    return path or (beside if os.path.isfile(beside) else None)


def _read_names(path):
    """Return the list of names in a JSON file; None where a run has no classes."""
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"The file of labels is no JSON. Received: {path!r}.") from error
    return content.get("labels") if isinstance(content, dict) else content


if __name__ == "__main__":
    sys.exit(main())
