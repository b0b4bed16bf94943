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
