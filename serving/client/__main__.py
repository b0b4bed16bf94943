"""Command line that prints a server's translations, one per line."""

import argparse
import os
import sys

from .grpc_client import GrpcClient
from .rest_client import RestClient
from .retries import ClientError


def main(arguments=None):
    """Print one translation per line; return 0, or 1 without an answer."""
    flags = _flags(arguments)
    options = {"timeout": flags.timeout, "retries": flags.retries}
    try:
        if flags.url is None:
            client = GrpcClient(flags.grpc, flags.model_name or "default", **options)
        else:
            client = RestClient(flags.url, **options)
        with client:
            if flags.stream:
                return _print(_streamed(client, flags))
            answers = (client.complete if flags.complete else client.translate)(flags.texts)
    except (ClientError, ImportError, ValueError) as error:
        print(f"keras-attn ask: {error}", file=sys.stderr)
        return 1
    return _print(
        f"{answer.score}\t{answer.text}\n" if flags.score else f"{answer.text}\n"
        for answer in answers
    )


def _flags(arguments):
    """Parse the command line, and refuse flags that exclude each other."""
    parser = argparse.ArgumentParser(prog="keras-attn ask", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="model over REST, http://HOST:PORT/v1/models/NAME")
    where.add_argument("--grpc", metavar="HOST:PORT", help="server over gRPC; add --model_name")
    add = parser.add_argument
    add("--model_name", help="model for --grpc (default: default)")
    add("--timeout", type=float, default=60.0, help="seconds, with all attempts (default: 60)")
    add("--retries", type=int, default=4, help="attempts after the first (default: %(default)s)")
    add("--complete", action="store_true", help="print what follows each text instead")
    add("--stream", action="store_true", help="print what follows each text token by token (--url)")
    add("--max_tokens", type=int, help="of --stream (default: 64)")
    add("--score", action="store_true", help="print each score and a tab before the text")
    add("texts", nargs="+", metavar="text", help="a sentence to translate")
    flags = parser.parse_args(arguments)
    if flags.url is not None and flags.model_name is not None:
        parser.error("--model_name is for --grpc; a --url names its model itself")
    if flags.stream and (flags.url is None or flags.complete or flags.score):
        parser.error("--stream is for --url, without --complete and --score")
    if flags.max_tokens is not None and not flags.stream:
        parser.error("--max_tokens is for --stream")
    return flags


def _streamed(client, flags):
    """Yield the text of each token, and a line end after each of the texts."""
    most = 64 if flags.max_tokens is None else flags.max_tokens
    for text in flags.texts:
        for token in client.stream(text, max_tokens=most):
            yield token.text
        yield "\n"


def _print(pieces):
    """Print pieces of text as they come; return 0, or 1 if they cannot be written."""
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    except (OSError, UnicodeError) as error:
        print(f"keras-attn ask: The answers cannot be written: {error}", file=sys.stderr)
        if isinstance(error, OSError):
            # The rest of the buffer would raise again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
