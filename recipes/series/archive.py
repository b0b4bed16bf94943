"""Files of the UCR and UEA archives, `.ts`, as a table that the recipe reads."""

import argparse
import csv
import io
import math
import sys

from ..common import files
from ..common.cli import fail, sentence
from ..common.text_reader import text_blocks


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="keras-attn series table",
        description="Writes the series with labels of a .ts file of the UCR and UEA archives to a "
        "table with the columns id, time, label and a column of values for each channel, which "
        "`keras-attn series --task classes --id-column id` reads.",
    )
    parser.add_argument("source", metavar="FILE.ts")
    parser.add_argument("table", metavar="FILE.csv", help="is written")
    options = parser.parse_args(arguments)
    try:
        rows = list(read_ts(options.source))
        files.write(options.table, table_of(rows))
    except (OSError, ValueError, ImportError) as error:
        return fail("recipes.series.archive", sentence(error))
    print(f"{options.table}: {len(rows)} series")
    return 0


def read_ts(path):
    """Yield the channels of each series, lists of numbers, and its label.

    Lines before `@data` are a header. In each line after it channels are divided by ":", their
    values by ","; the label is last, and "?" is a missing value.

    Raises:
        ValueError: if the file is missing, has no `@data`, times beside its values or no labels, or
            a value is no number.
    """
    header, is_data = {}, False
    lines = "".join(text_blocks(path)).split("\n")
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not is_data:
            name, _, value = line.partition(" ")
            header[name.lower()] = value.strip().lower()
            is_data = name.lower() == "@data"
            continue
        if header.get("@timestamps") == "true" or not header.get("@classlabel", "").startswith(
            "true"
        ):
            raise ValueError(f"The file {path} must have labels and no times beside its values.")
        *channels, label = line.split(":")
        try:
            values = [[_number(text) for text in channel.split(",")] for channel in channels]
        except ValueError as error:
            raise ValueError(f"Line {number} of the file {path} has no numbers: {error}.") from None
        yield values, label.strip()
    if not is_data:
        raise ValueError(f"The file {path} must have a line @data.")


def table_of(rows):
    """Return the text of a table of the series that `read_ts` yields.

    Channels of different lengths end with empty fields.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    width = max((len(channels) for channels, _ in rows), default=0)
    writer.writerow(["id", "time", "label", *(f"value{n + 1}" for n in range(width))])
    for index, (channels, label) in enumerate(rows):
        for time in range(max(map(len, channels))):
            values = (channel[time] if time < len(channel) else math.nan for channel in channels)
            fields = ("" if math.isnan(value) else repr(value) for value in values)
            writer.writerow([index, time, label, *fields])
    return text.getvalue()


def _number(text):
    return math.nan if text.strip() == "?" else float(text)


if __name__ == "__main__":
    sys.exit(main())
