"""The loops that `Beam` is compared with, beside Hugging Face's `generate`."""

import numpy as np
import pytest
from beam_rules import hugging_face_search, table_of

torch = pytest.importorskip("torch", reason="the peer needs torch")
transformers = pytest.importorskip("transformers", reason="the peer needs transformers")

SIZE, BOS, MAX_LENGTH = 17, 2, 9


class Table(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A model whose next token depends on the last one only."""

    config_class = transformers.PretrainedConfig

    def __init__(self, seed):
        super().__init__(transformers.PretrainedConfig(vocab_size=SIZE, is_decoder=True))
        self.table = torch.nn.Parameter(torch.tensor(table_of(seed, SIZE)))

    def forward(self, input_ids, **arguments):
        return transformers.modeling_outputs.CausalLMOutput(logits=self.table[input_ids])


@pytest.mark.parametrize("ends", [[3], [3, 5]])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_search_equals_transformers(length_penalty, early_stopping, ends):
    for seed in range(20):
        table = table_of(seed, SIZE).astype("float64")
        table -= np.log(np.exp(table).sum(axis=1, keepdims=True))
        expected, score = hugging_face_search(
            lambda row, tokens: table[tokens[-1] if tokens else BOS],
            *(3, length_penalty, early_stopping, MAX_LENGTH, ends),
        )
        output = Table(seed).generate(
            torch.tensor([[BOS]]),
            num_beams=3,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            max_new_tokens=MAX_LENGTH,
            eos_token_id=ends,
            pad_token_id=0,
            use_cache=False,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        ids = output.sequences[0, 1:].tolist()
        assert ids + [0] * (MAX_LENGTH - len(ids)) == expected
        assert output.sequences_scores[0].item() == pytest.approx(score, abs=1e-4)
