"""A conversation with a model that has a memory."""

from .errors import ClientError


class Session:
    """Holds what the model remembers and passes it on: the server keeps nothing.

        outputs_t, memory_{t+1} = step(segment_t, memory_t)

    For one thread. A step that fails leaves the memory as it was, so it can be taken again.

    Args:
        client: `Client` of an export with the signatures `initial_memory` and `step`.
        batch_size: int. Rows of each segment.

    Raises:
        ClientError: if the model has no memory, or there is no answer.

    Attributes:
        memory: dict of the tensors that the next step is given, as nested lists.
    """

    def __init__(self, client, batch_size=1):
        self._client = client
        self.memory = client.predict({"batch_size": batch_size}, "initial_memory")

    def step(self, *, lengths=None, **segment):
        """Reads one more segment.

        Args:
            lengths: list of B ints. How much of each row is real; by default all.
            **segment: `token_ids` (B, T) or `states` (B, T, ...).

        Returns:
            dict of the outputs, without the memory: `logits` (B, T, V), or what the heads give.

        Raises:
            ClientError: if there is no answer, the server refuses, or the segment has no rows.
        """
        if lengths is None:
            try:
                (rows,) = segment.values()
                lengths = [len(row) for row in rows]
            except (TypeError, ValueError) as error:
                raise ClientError(
                    "A step reads rows of `token_ids` or of `states`, and without `lengths` nothing "
                    f"else. Received: {segment!r}."
                ) from error
        inputs = {**segment, "lengths": lengths, **self.memory}
        outputs = self._client.predict(inputs, "step")
        self.memory = {name: outputs.pop(name) for name in self.memory}
        return outputs
