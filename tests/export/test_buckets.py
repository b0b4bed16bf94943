"""Buckets of compiled exports: their arguments, and the graph around the compiled function."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from each import check_each

from keras_attn import export, generation, models
from keras_attn.commands.export import main

BUCKETS = export.Buckets((1, 3), (5, 11))
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 13}


def test_buckets_are_increasing_integers():
    for sizes in ((), (4, 4), (4, 2), (0, 1), (1.0, 2.0), "12", 4, (True, 2)):
        for name in ("batches", "lengths"):
            with pytest.raises(ValueError, match=f"`{name}` must be increasing integers"):
                export.Buckets(**{name: sizes})
    for parts in (0, 2.0, True, "2"):
        with pytest.raises(ValueError, match="`parallel` must be"):
            export.Buckets(parallel=parts)


def test_buckets_end_at_the_longest_row_that_is_read():
    buckets = export.Buckets((1, 3), (5, 11, 17))
    lengths = {4: (4,), 5: (5,), 7: (5, 7), 17: (5, 11, 17), 99: (5, 11, 17)}
    for limit, expected in lengths.items():
        assert buckets.up_to(limit) == export.Buckets((1, 3), expected)
    assert buckets.shapes == [(1, 5), (1, 11), (1, 17), (3, 5), (3, 11), (3, 17)]


def test_a_batch_is_padded_by_its_last_row_and_cut_to_its_bucket():
    """The compiled function is one that shows what it gets; the plain one changes the sign."""
    shapes = []

    def compiled(ids, lengths):
        tf.py_function(lambda x: shapes.append(tuple(x.shape)), [ids], [])
        return ids, lengths

    dispatch = BUCKETS.dispatch(compiled, lambda *inputs: tuple(-x for x in inputs), pad_id=2)
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    dispatched = tf.function(dispatch, specs, autograph=False)
    sizes = (0, 0), (2, 2), (5, 4), (6, 5), (7, 6), (13, 12), (4, 9)
    cases = [(rows, width, longest) for rows in range(5) for width, longest in sizes]
    check_each(lambda *case: check_dispatch(dispatched, shapes, *case), cases)


def check_dispatch(dispatched, shapes, rows, width, longest):
    shapes.clear()
    ids = 4 + np.arange(rows * width).reshape(rows, width)
    lengths = np.maximum(longest - np.arange(rows), 0)
    inputs = ids.astype("int32"), lengths.astype("int32")
    found_ids, found_lengths = dispatched(*inputs)
    read = np.minimum(lengths, width)
    if not 0 < rows <= 3 or min(longest, width) > 11:
        assert shapes == []
        np.testing.assert_array_equal(found_ids, -ids)
        np.testing.assert_array_equal(found_lengths, -read)
        return
    length = 5 if min(longest, width) <= 5 else 11
    assert shapes == [(1 if rows == 1 else 3, length)]
    expected = np.full((rows, max(length, width)), 2)
    expected[:, :width] = ids
    np.testing.assert_array_equal(found_ids, expected[:, :length])
    np.testing.assert_array_equal(found_lengths, read)


def test_a_batch_is_divided_into_equal_parts_of_which_none_is_empty():
    rows_of_calls, sign = [], tf.Variable(1)

    @tf.function(autograph=False)
    def compiled(ids, lengths):
        tf.py_function(lambda x: rows_of_calls.append(len(x)), [ids], [])
        return sign * ids, sign * lengths

    buckets = export.Buckets((1, 2, 3), (5,), parallel=3)
    dispatch = buckets.dispatch(compiled, lambda *inputs: tuple(-x for x in inputs), pad_id=2)
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    dispatched = tf.function(dispatch, specs, autograph=False).get_concrete_function()
    parts = {1: [1], 2: [1, 1], 3: [1, 1, 1], 4: [1, 1, 2], 5: [1, 2, 2], 7: [2, 2, 3]}
    for rows in range(11):
        ids = 4 + np.arange(rows * 5, dtype="int32").reshape(rows, 5)
        lengths = 1 + np.arange(rows, dtype="int32") % 5
        rows_of_calls.clear()
        expected = (ids, lengths) if 0 < rows <= 9 else (-ids, -lengths)
        for output, array in zip(dispatched(ids, lengths), expected, strict=True):
            np.testing.assert_array_equal(output, array)
        assert sorted(rows_of_calls) == parts.get(rows, sorted(rows_of_calls))
    assert buckets.batch_shapes == [(3, 5), (6, 5), (9, 5)]


def test_no_part_of_a_batch_waits_for_another():
    """No call in a graph reads what another call computes."""
    sign, counts = tf.Variable(1), []

    @tf.function(autograph=False)
    def compiled(ids, lengths):
        return sign * ids, sign * lengths

    @tf.function(autograph=False)
    def decode(ids, lengths):
        return export.Buckets((4,), (5,), parallel=3).dispatch(compiled, compiled, 2)(ids, lengths)

    graph = decode.get_concrete_function(tf.zeros([7, 5], tf.int32), tf.ones([7], tf.int32)).graph
    (case,) = (op for op in graph.get_operations() if op.type == "Case")
    for branch in case.get_attr("branches"):
        calls = {
            x for x in graph._get_function(branch.name).graph.get_operations() if "Call" in x.type
        }
        for call in calls:
            assert not calls & ancestors(call)
        counts.append(len(calls))
    assert counts == [1, 1, 2, 3]


def ancestors(operation):
    """Return all operations of a graph that one waits for."""
    found, waiting = set(), [operation]
    while waiting:
        operation = waiting.pop()
        before = {x.op for x in operation.inputs} | set(operation.control_inputs)
        waiting += before - found
        found |= before
    return found


def test_a_seed_is_refused_where_parts_would_draw_the_same(tmp_path):
    model = models.gpt(19, **SIZES, max_length=13)
    buckets = export.Buckets((1,), (5,), parallel=2)
    sample = generation.Sample(seed=1)
    strategies = sample, generation.Speculative(model, 2, sample)
    for strategy in strategies:
        with pytest.raises(ValueError, match="`seed` must be None where .* parallel parts.*seed=1"):
            export.TokenGenerator(model, strategy, 3, 5, buckets=buckets)
    export.TokenGenerator(model, generation.Sample(), 3, 5, buckets=buckets)


def test_what_cannot_be_compiled_is_refused_in_one_sentence(tmp_path, monkeypatch):
    model = models.transformer(19, **SIZES)

    def refused(sentence, model=model, compile="xla", **options):
        with pytest.raises(ValueError, match=sentence) as error:
            export.saved_model(model, tmp_path / "export", compile=compile, **options)
        assert "\n" not in str(error.value) and not (tmp_path / "export").exists()

    refused("`compile` must be one of None, 'xla'.*'llvm'", compile="llvm")
    refused("`buckets` must be None without `compile`", compile=None, buckets=BUCKETS)
    refused("`buckets` must be a `keras_attn.export.Buckets`", buckets=((1, 3), (5, 11)))
    needs = "`compile` needs a model with a decoding function.*signatures "
    refused(needs + "encode, logits", models.bert(19, **SIZES, max_length=13))
    refused(needs + ".*initial_memory", models.transformer_xl(19, **SIZES, memory_length=5))
    monkeypatch.setattr(tf.test, "is_built_with_xla", lambda: False)
    refused("built with XLA")


def test_the_command_refuses_buckets_that_do_not_increase(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(keras.models, "load_model", lambda path: None)
    # What a directory holds is checked by Keras only.
    arguments = ["saved_model", str(tmp_path), str(tmp_path / "export")]
    assert main([*arguments, "--compile", "xla", "--batches", "4", "2"]) == 2
    assert "`batches` must be increasing integers" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--lengths", "5"])
    assert "--lengths needs --compile" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--parallel", "2"])
    assert "--parallel needs --compile" in capsys.readouterr().err
