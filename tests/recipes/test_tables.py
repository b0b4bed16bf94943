"""Tables of texts: each kind of file, and each damage refused in one sentence."""

import gzip
import json

import pytest

from recipes.fine_tune.tables import read_columns, read_rows

ROWS = [["one, two", "yes"], ['a "quoted"\nline', "no"], ["日本\u2028語", "yes"]]


@pytest.mark.parametrize("kind, separator", [("csv", ","), ("tsv", "\t")])
def test_fields_may_have_separators_quotes_and_line_ends(tmp_path, kind, separator):
    lines = [separator.join(("id", "text", "label"))]
    for index, (text, label) in enumerate(ROWS):
        quoted = '"' + text.replace('"', '""') + '"'
        lines.append(separator.join((str(index), quoted, label)))
    path = tmp_path / f"rows.{kind}"
    path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8", newline="")
    assert read_columns(path, "text", "label") == ROWS
    path.with_suffix(f".{kind}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_columns(f"{path}.gz", "label") == [[label] for _, label in ROWS]


def test_lines_of_json_keep_their_types(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"text": text, "label": number, "id": None} for number, (text, _) in enumerate(ROWS)]
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    expected = [[text, number] for number, (text, _) in enumerate(ROWS)]
    assert read_columns(path, "text", "label") == expected


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("rows.txt", b"text,label\na,b", "must be a .csv, .tsv or .jsonl file"),
        ("rows.csv", b"", "rows.csv is empty"),
        ("rows.csv", b"text,label\n", "has no row after the names of its columns"),
        ("rows.csv", b"text,label\na,b\n\xff\xfe,b\n", "Line 3 of the file .* is not UTF-8"),
        ("rows.csv", b"words,label\na,b\n", "no column 'text' in the header .* line 1, .* 'words'"),
        ("rows.csv", b"text,label\na,b\nc\n", "column 'label' is empty in line 3"),
        ("rows.csv", b"text,label\na,b\n,b\n", "column 'text' is empty in line 3"),
        ("rows.csv", b"text,label\na,b,c\n", "Line 2 .* has more fields than there are columns, 2"),
        ("rows.csv", b'text,label\nc,d\n"a,b\n\n', "quotation that begins in line 3 .* no end"),
        ("rows.csv", b"text,label\na, \xc2\xa0\n", "column 'label' is empty in line 2"),
        ("rows.csv", b"text,label,label\na,b,c\n", "has 2 columns 'label'"),
        ("rows.tsv", "text\tlabel\na\tb\n".encode("utf-16"), "must be UTF-8. Received: UTF-16"),
        ("rows.jsonl", b'{"text": "a", "label": NaN}', "Line 1 .* is not JSON: it has no NaN"),
        ("rows.jsonl", b'{"text": "a", "label": 1}\n{"text": ', "Line 2 .* is not JSON"),
        ("rows.jsonl", b"[" * 100_000, "Line 1 .* is not JSON"),
        ("rows.jsonl", b'["a", "b"]', "Line 1 .* is not a JSON object"),
        ("rows.jsonl", b'{"text": "a", "label": null}', "'label' is empty in line 1"),
        ("rows.csv.gz", b"text,label\na,b", "is not a complete gzip file"),
    ],
)
def test_a_damaged_table_is_refused_in_one_sentence(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_columns(path, "text", "label")
    assert "\n" not in str(error.value)


SWALLOWED = "A quotation in lines 4 to 9 of the file .* holds lines that are rows by themselves"


@pytest.mark.parametrize("kind, separator", [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("place", [0, 1])
def test_a_quotation_that_swallows_rows_is_refused_with_its_lines(tmp_path, kind, separator, place):
    rows = [["id", "text", "label"], *([str(i), f"text {i}", "yes"] for i in range(11))]
    rows[3][place] = f'"{rows[3][place]}'
    rows[8][place] += '"'
    path = tmp_path / f"rows.{kind}"
    path.write_text("\n".join(map(separator.join, rows)))
    with pytest.raises(ValueError, match=SWALLOWED):
        read_columns(path, "text", "label")


@pytest.mark.parametrize(
    "name, lines, text",
    [
        ("rows.csv", ['"Hello, friends', 'I hated it",no'], "Hello, friends\nI hated it"),
        ("rows.csv", ['"1,2', '3",no', '"4, 5",no'], "1,2\n3"),
        ("rows.csv", ['"roses,', 'are red",no'], "roses,\nare red"),
        ("rows.tsv", ['"one', 'two"\tno'], "one\ntwo"),
        ("rows.tsv", ['"one\t', 'two"\tno'], "one\t\ntwo"),
    ],
)
def test_a_text_of_several_lines_is_read(tmp_path, name, lines, text):
    header = "text\tlabel" if name.endswith("tsv") else "text,label"
    (tmp_path / name).write_text("\n".join([header, *lines]))
    assert read_rows(tmp_path / name, "text", "label")[0] == (2, [text, "no"])


def test_line_ends_in_a_text_are_one_kind(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'text\r\n"one\r\ntwo"\r\n')
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one\\r\\ntwo"}\r\n')
    for name in ("a.csv", "a.jsonl"):
        assert read_columns(tmp_path / name, "text") == [["one\ntwo"]]


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(ValueError, match="none.csv does not exist"):
        read_columns(tmp_path / "none.csv", "text")
