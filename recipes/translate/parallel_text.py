"""Parallel text in files, one sentence a line, line by line a translation of each other."""

from .. import files


def read_parallel_text(data_dir, split, source, target, variant="raw"):
    """Reads one split of a parallel text from a directory laid out as that of Multi30k.

        SPLIT.LANGUAGE[.gz]  or, for another variant than raw,  SPLIT.VARIANT.LANGUAGE[.gz]

    The files are UTF-8, compressed or not; a compressed one is preferred. Only U+000A ends a line:
    other characters that some tools take for line ends, such as U+2028, may stand in a sentence.

    Args:
        data_dir: str or path.
        split: str, such as "train" or "test_2016_flickr".
        source: str. Language to translate from, such as "en".
        target: str. Language to translate to.
        variant: str. "raw", or for instance "lc.norm.tok".

    Returns:
        list of (source sentence, target sentence).

    Raises:
        ValueError: if the directory or a file is missing, a file is empty, damaged or not UTF-8,
            or the two sides have different numbers of lines.
    """
    stem = split if variant == "raw" else f"{split}.{variant}"
    paths = [files.find(data_dir, f"{stem}.{language}") for language in (source, target)]
    sources, targets = map(_read_lines, paths)
    if len(sources) != len(targets):
        raise ValueError(
            "The two sides of a parallel text must have the same number of lines. "
            f"Received: {paths[0]} with {len(sources)} and {paths[1]} with {len(targets)}"
        )
    return list(zip(sources, targets, strict=True))


def _read_lines(path):
    lines = files.read(path).removesuffix(b"\n").split(b"\n")
    return [_decoded(line, path, number) for number, line in enumerate(lines, start=1)]


def _decoded(line, path, number):
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"Line {number} of the file {path} is not UTF-8: {error}") from error
