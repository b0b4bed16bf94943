import keras
import numpy as np
import oracles

from keras_attn.layers import AnswerHead

B, T, D = 2, 3, 7


def test_logits_are_a_start_and_an_end_for_each_token():
    head, x = AnswerHead(), oracles.random(B, T, D)
    head.build(x.shape)
    oracles.scramble(head)
    kernel, bias = map(oracles.numpy_of, head.weights)
    expected = np.stack([x @ kernel[:, 0] + bias[0], x @ kernel[:, 1] + bias[1]], axis=-1)
    np.testing.assert_allclose(head(x), expected, atol=1e-5)


def test_logits_are_float32_under_a_policy_of_less():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        head = AnswerHead.from_config(AnswerHead(name="answers").get_config())
        assert keras.backend.standardize_dtype(head(np.ones((B, T, D))).dtype) == "float32"
    finally:
        keras.config.set_dtype_policy("float32")


def test_an_answer_has_at_most_so_many_tokens():
    """The best start and end are too far apart, or in the wrong order."""
    logits = np.zeros((2, 7, 2), "float32")
    logits[0, 1, 0] = logits[0, 6, 1] = 9
    logits[0, 3, 1] = 8
    logits[1, 5, 0] = logits[1, 2, 1] = 4
    is_allowed = np.ones((2, 7), bool)
    is_allowed[1, 5] = False
    first, last, score = AnswerHead.best_spans(logits, is_allowed, max_length=3)
    assert (first[0], last[0]) == (1, 3) and first[1] <= last[1] == 2
    nothing = AnswerHead.best_spans(logits, np.zeros((2, 7), bool))[2]
    assert np.all(np.asarray(nothing) == 0) and np.all(np.asarray(score) > 0)
