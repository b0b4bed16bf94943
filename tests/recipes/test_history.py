"""The history of a run, over several `fit`s."""

import csv

import pytest

from recipes.common.card import History, read_history


def write_epochs(path, first, logs):
    """Log epochs as a `fit` that begins at epoch `first` does."""
    history = History(path, first)
    for epoch, entries in enumerate(logs, first):
        history.on_epoch_end(epoch, dict(entries))


def test_a_metric_of_some_epochs_has_a_column_of_its_own(tmp_path):
    """Validation after every second epoch; a second `fit` begins with an epoch that has it."""
    path = tmp_path / "history.csv"
    write_epochs(path, 0, [{"loss": 3.5}])
    write_epochs(path, 1, [{"loss": 2.5, "bleu": 17.0, "val_loss": 2.75}, {"loss": 2.25}])
    write_epochs(path, 3, [{"loss": 2, "val_loss": 2.5, "bleu": 19.0}])
    assert read_history(path) == [
        {"epoch": 0, "loss": 3.5, "bleu": None, "val_loss": None},
        {"epoch": 1, "loss": 2.5, "bleu": 17.0, "val_loss": 2.75},
        {"epoch": 2, "loss": 2.25, "bleu": None, "val_loss": None},
        {"epoch": 3, "loss": 2, "bleu": 19.0, "val_loss": 2.5},
    ]


def test_rows_of_epochs_that_are_trained_again_are_replaced(tmp_path):
    path = tmp_path / "history.csv"
    write_epochs(path, 0, [{"loss": 3.5}, {"loss": 2.5}, {"loss": 1.5}])
    write_epochs(path, 1, [{"loss": 2.0}])
    assert read_history(path) == [{"epoch": 0, "loss": 3.5}, {"epoch": 1, "loss": 2.0}]
    write_epochs(path, 0, [])
    assert read_history(path) == []


@pytest.mark.parametrize(
    "text",
    [
        b"a,b\n1,2\n",
        b"epoch,loss\n0\n",
        b"epoch,loss\n0,1,2\n",
        b"epoch,loss\n\0,1\n",
        b"epoch,loss\n0,\xff\n",
        b"epoch,loss\n0," + b"1" * 150_000 + b"\n",
    ],
    ids=["no epoch", "few", "many", "no number", "no UTF-8", "too long"],
)
def test_a_damaged_history_is_reported(tmp_path, text, request):
    before = csv.field_size_limit(131_072)  # Python's own, which a table may have raised
    request.addfinalizer(lambda: csv.field_size_limit(before))
    path = tmp_path / "history.csv"
    assert read_history(path) == []
    path.write_text("epoch,loss,val\n0,1.5,\n")
    assert read_history(path) == [{"epoch": 0, "loss": 1.5, "val": None}]
    path.write_bytes(text)
    with pytest.raises(ValueError, match="history.csv is damaged; delete it"):
        History(path)
