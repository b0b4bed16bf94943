"""A compiled export on the embedded server: its answers are those of the plain signatures."""

import numpy as np
import oracles
import pytest
from servers import running, wait_for

from keras_attn import export, models, text

TEXTS = ["a dog ran", "", "a", "dog ran a dog", "ran"]
pytestmark = pytest.mark.slow


def test_compiled_signatures_answer_as_their_plain_twins(tmp_path):
    tokenizer = text.Characters.train(["a dog ran"])
    model = models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 11)
    oracles.scramble(model, 3)
    options = {"max_length": 5, "compile": "xla", "buckets": export.Buckets((3,), (13,))}
    path = tmp_path / "versions"
    export.saved_model(model, path, tokenizer=tokenizer, **options)
    log = tmp_path / "server.log"
    with running(log, "--model_name=words", f"--model_base_path={path}") as server:
        wait_for(lambda: server.states("words").get(1) == "AVAILABLE", seconds=300)
        for texts in (TEXTS, TEXTS[:3], TEXTS[3:], TEXTS[1:2]):
            answers = []
            for name in ("serving_default", "plain"):
                request = {"signature_name": name, "instances": texts}
                status, answer = server.predict(request, model="words")
                assert status == 200, answer
                answers.append(answer["predictions"])
            compiled, plain = answers
            assert [row["translation"] for row in compiled] == [row["translation"] for row in plain]
            scores, expected = ([row["score"] for row in rows] for rows in answers)
            np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
