"""Speculative decoding: a small model proposes tokens, the model checks several at once."""

from keras import ops, tree

from keras_attn.backend.operations import uniform
from keras_attn.generation.decoding import check_model, get_strategy
from keras_attn.generation.distributions import draw, forbids_all
from keras_attn.generation.loop import Strategy, cache_loop, read_prompt
from keras_attn.generation.rounds import RowStates, accept, append
from keras_attn.generation.tokens import vocabulary_size
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.registry import register


@register
class Speculative(Strategy):
    """Speculative decoding: a draft proposes G tokens, and the model reads them in one step.

        accept x_i ~ q with probability min(1, p(x_i) / q(x_i)); at the first refusal draw from
        max(0, p - q), normalised; if all G are accepted, draw one more from p

    The result has exactly the distribution of `strategy` with the model alone; with "greedy" it has
    the same tokens. With acceptance rate a, a step of the model gives (1 - a^(G + 1)) / (1 - a)
    tokens on average. Rows accept differently: a round takes one slot of both caches more than the
    row that accepts most has accepted tokens, a mask hides the refused ones, and each row has
    positions of its own. Models of your own take G + 1 slots a round, unless both have a method
    `rewind(cache, count)`, which returns a cache that is cut back to its first `count` slots.

    Cost: a round is a step of the model on G + 1 tokens, and G + 1 steps of the draft. On one core
    6 layers of width 512 write 2.5 times as many tokens with a distilled draft of 2 layers of width
    128 (`recipes.benchmarks.speculation`); small models may lose by it.

    Use it for models whose step costs much more than G + 1 steps of a draft that agrees.

    Args:
        draft: a smaller model of the same kind and vocabulary, with no fewer positions.
        tokens: int. Number G of proposed tokens.
        strategy: `"greedy"`, `"sample"`, or a `Greedy` or `Sample`.

    Raises:
        ValueError: if `tokens` < 1, the strategy is another one, or the draft does not fit.

    Example:
        >>> import keras_attn
        >>> draft = keras_attn.models.transformer(20, 1, 2, 8, 16)
        >>> keras_attn.generation.Speculative(draft, tokens=2)
        Speculative(EncoderDecoder, tokens=2)

    Differs from the paper: the draft reads its last proposal in a step of its own, so that both
        caches have the same slots.

    Reference: [Leviathan et al., 2022](https://arxiv.org/abs/2211.17192), section 2.3, algorithm 1;
        [Chen et al., 2023](https://arxiv.org/abs/2302.01318), algorithm 2.
    """

    runs_in_one_thread = False
    dynamic = ()

    def __init__(self, draft, tokens=4, strategy="greedy"):
        check_model(draft)
        check_sizes(tokens=tokens)
        self.draft, self.tokens, self.strategy = draft, tokens, get_strategy(strategy)
        has_distribution = hasattr(self.strategy, "distribution")
        check_that(has_distribution, "a `Greedy` or a `Sample`", strategy=self.strategy)
        self.models = (draft,)

    def noise(self, length, batch_size):
        seed = getattr(self.strategy, "seed", None)
        return uniform((length, batch_size, 2 * (self.tokens + 1)), seed)

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `Inputs`, as `generate` does."""
        ids, scores, _ = self.decode_and_count(model, inputs, options)
        return ids, scores

    def decode_and_count(self, model, inputs, options):
        """Return ids, scores, and the number of steps of the model for each row, int32 (B,)."""
        _check_draft(self.draft, model)
        options, width = self.strategy.with_processors(options), self.tokens + 1
        batch_size = ops.shape(inputs.ids)[0]
        rewinds = all(getattr(each, "rewind", None) is not None for each in (model, self.draft))
        num_slots = 0
        if not options.grows:
            num_slots = self._num_slots(options.capacity, inputs.ids.shape[0] if rewinds else None)
        prompt, draft_prompt = (
            read_prompt(each, inputs, options, num_slots) for each in (model, self.draft)
        )
        noise = options.with_noise_of(self, batch_size).noise
        rows = self._first_rows(model, inputs, prompt.logits, noise[0, :, 0], options)

        def body(number, first, rows, slots):
            visible, positions, cache, draft_cache = slots
            if options.grows:
                no_slots = [[0, 0], [0, 0], [0, width]]
                visible, positions = ops.pad(visible, no_slots), ops.pad(positions, no_slots)
            offset = ops.arange(ops.shape(visible)[2], dtype="int32") - first
            is_new = ops.logical_and(offset >= 0, offset < width)
            start = prompt.positions + ops.expand_dims(rows.length, 1) - 1  # (B, 1)
            positions = ops.where(is_new, ops.expand_dims(start, -1) + offset, positions)
            visible = ops.logical_or(visible, is_new)
            # Tokens beyond `max_length` are dropped, but the model may have no positions for them.
            last = prompt.positions + ops.maximum(options.max_length - 2, 0)
            query_positions = ops.minimum(start + ops.arange(width, dtype="int32"), last)

            def read(reader, constants, cache, tokens, done):
                """Step a model over tokens (B, T), after `done` tokens of the round."""
                end = done + tokens.shape[1]
                filled = first + end if options.grows else None
                masks = {"padding_mask": visible[:, 0, :filled]}
                masks["key_positions"] = positions[:, 0, :filled]
                return reader.step(tokens, constants, cache, query_positions[:, done:end], **masks)

            def read_draft(token, done, cache):
                return read(
                    self.draft, draft_prompt.constants, cache, ops.expand_dims(token, 1), done
                )

            numbers = ops.take(noise, number, axis=0)  # (B, 2 (G + 1))
            tokens, states, q, draft_cache = self._propose(
                read_draft, rows, draft_cache, numbers[:, :width], options.processors
            )
            logits, cache = read(model, prompt.constants, cache, tokens, 0)
            p, log_p = self._distributions(logits, states, options)
            new, accepted = accept(p, q, tokens[:, 1:], numbers[:, width:])
            is_refused = ops.logical_and(is_new, offset > ops.expand_dims(accepted, (1, 2)))
            visible = ops.logical_and(visible, ops.logical_not(is_refused))
            end = first + width
            if rewinds:
                end = first + 1 + ops.max(ops.where(rows.finished, 0, accepted))
                cache, draft_cache = model.rewind(cache, end), self.draft.rewind(draft_cache, end)
                if options.grows:
                    visible, positions = visible[:, :, :end], positions[:, :, :end]
            rows = append(rows, new, accepted, log_p, states, options)
            return number + 1, end, rows, (visible, positions, cache, draft_cache)

        padding_mask = prompt.padding_mask
        if padding_mask is None:
            padding_mask = ops.ones((batch_size, prompt.size), "bool")
        visible = ops.pad(ops.expand_dims(padding_mask, 1), [[0, 0], [0, 0], [0, num_slots]])
        positions = ops.arange(ops.shape(visible)[2], dtype="int32")
        positions = ops.broadcast_to(positions, ops.shape(visible))
        slots = visible, positions, prompt.cache, draft_prompt.cache
        number, first = (ops.convert_to_tensor(x, "int32") for x in (1, prompt.size))
        state = number, first, rows, slots
        _, _, rows, _ = cache_loop(
            lambda number, first, rows, slots: ops.logical_not(ops.all(rows.finished)),
            body,
            state,
            options.grows,
        )
        return rows.ids, rows.score, rows.steps

    def _num_slots(self, capacity, batch_size):
        """Return the most slots that rounds fill, for as many rows if their caches are rewound."""
        num_rounds = capacity - 1  # each gives a token at least
        most = num_rounds * (self.tokens + 1)
        if batch_size is None:
            return most
        # A round advances by the most that a row accepts, at most by what all rows accept. A row
        # takes `num_rounds` slots, and G more if its last round goes beyond the end.
        return min(most, batch_size * (num_rounds + self.tokens))

    def _first_rows(self, model, inputs, logits, numbers, options):
        """Return the rows after the first token, which the model alone chooses."""
        states = options.processors.start(model, inputs, logits.shape[-1])
        p, log_p = self._distributions(logits, states, options)
        zeros = ops.zeros_like(numbers)
        rows = RowStates(
            token=ops.cast(zeros, "int32"),
            length=ops.cast(zeros, "int32"),
            finished=ops.cast(zeros, "bool"),
            score=zeros,
            ids=ops.full(
                (ops.shape(inputs.ids)[0], options.capacity), options.fill_id, dtype="int32"
            ),
            steps=ops.cast(zeros, "int32"),
            states=states,
        )
        token, _ = draw(p, numbers)
        step_states = tree.map_structure(lambda state: ops.expand_dims(state, 1), states)
        none = ops.zeros_like(rows.length)
        return append(
            rows, ops.expand_dims(token, 1), none, ops.expand_dims(log_p, 1), step_states, options
        )

    def _propose(self, read_draft, rows, cache, numbers, processors):
        """Draw the proposals of one round from the draft.

        Returns:
            tokens (B, G + 1): the newest token and the G proposals.
            states of the processors before each next token, (B, G + 1, ...).
            q (B, G, V), the distributions that the proposals are drawn from.
            The draft's new cache.
        """
        tokens, states, q = [rows.token], [rows.states], []
        for done in range(self.tokens):
            logits, cache = read_draft(tokens[-1], done, cache)
            logits = processors.apply(logits[:, 0], states[-1])
            q.append(self.strategy.distribution(logits)[0])
            tokens.append(draw(q[-1], numbers[:, done])[0])
            states.append(processors.advance(states[-1], tokens[-1]))
        _, cache = read_draft(tokens[-1], self.tokens, cache)
        states = tree.map_structure(lambda *parts: ops.stack(parts, axis=1), *states)
        return ops.stack(tokens, axis=1), states, ops.stack(q, axis=1), cache

    def _distributions(self, logits, states, options):
        """Return the strategy's distributions and their logarithms for logits (..., V).

        The logarithms are -inf where no token is allowed.
        """
        shape, logits = ops.shape(logits), options.process(logits, states)
        rows = ops.reshape(logits, (-1, shape[-1]))
        p, log_p = self.strategy.distribution(rows, options.renormalize)
        if options.processors.processors:
            log_p = ops.where(ops.expand_dims(forbids_all(rows), 1), -float("inf"), log_p)
        return [ops.reshape(x, shape) for x in (p, log_p)]

    # Equal configurations of two drafts do not mean equal weights.
    def __eq__(self, other):
        is_same = type(self) is type(other) and self.draft is other.draft
        return is_same and (self.tokens, self.strategy) == (other.tokens, other.strategy)

    def __hash__(self):
        return hash((type(self), id(self.draft), self.tokens, self.strategy))


def _check_draft(draft, model):
    """Raise a `ValueError` if the draft cannot propose tokens of the model."""
    sizes = [vocabulary_size(each) for each in (model, draft)]
    if sizes[0] != sizes[1] or model.reads_prompt != draft.reads_prompt:
        raise ValueError(
            "`draft` must be a model of the same kind and vocabulary as the model. "
            f"Received: {type(draft).__name__} of {sizes[1]} tokens for a "
            f"{type(model).__name__} of {sizes[0]}."
        )
    for name in ("max_length", "max_source_length"):
        limit, wanted = getattr(draft, name), getattr(model, name)
        if limit is not None and (wanted is None or limit < wanted):
            raise ValueError(
                "`draft` must have at least the positions of the model. "
                f"Received: {name}={limit} of the draft, {wanted} of the model."
            )
