"""The loop that writes one token at a time."""

from keras import ops

from keras_attn.generation.prompt import pad_slots, read_prompt, slot_positions
from keras_attn.generation.while_loop import while_loop


def write(model, inputs, choose, task):
    """Writes tokens picked by `choose(logits (B, V), step) -> (tokens (B,), log-probs (B,))`.

    Returns ids (B, max_length) and the sum of the log-probabilities of each row.
    """
    max_length, eos_id = task.max_length, task.eos_id
    prompt = read_prompt(model, inputs, task, max_length - 1)
    columns = ops.arange(max_length, dtype="int32")
    token, score = choose(prompt.logits, 0)
    ids = ops.where(columns == 0, token[:, None], 0)
    finished = ops.equal(token, eos_id)

    def unfinished(step, token, finished, score, ids, cache):
        return ops.logical_and(step < max_length, ops.logical_not(ops.all(finished)))

    def body(step, token, finished, score, ids, cache):
        positions = prompt.positions + (step - 1)
        masks = {}
        if prompt.real is not None:
            num_slots = step if task.grows else max_length - 1
            masks["padding_mask"] = pad_slots(prompt.real, num_slots)
            # Rows with shorter prompts continue at positions of their own.
            slots = ops.arange(prompt.size + num_slots, dtype="int32")
            masks["key_positions"] = slot_positions(prompt, 1, slots)
        logits, cache = model.step(token[:, None], prompt.constants, cache, positions, **masks)
        token, log_prob = choose(logits[:, 0], step)
        token = ops.where(finished, 0, token)
        score = score + ops.where(finished, 0.0, log_prob)
        ids = ops.where(columns == step, token[:, None], ids)
        finished = ops.logical_or(finished, ops.equal(token, eos_id))
        return step + 1, token, finished, score, ids, cache

    state = (ops.convert_to_tensor(1, "int32"), token, finished, score, ids, prompt.cache)
    _, _, _, score, ids, _ = while_loop(unfinished, body, state, task.grows)
    return ids, score
