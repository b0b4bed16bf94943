"""Adaptive computation time: one block, repeated a different number of times per position."""

import functools

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.inputs import join_masks
from keras_attn.backend.loops import bounded_while
from keras_attn.backend.replicas import mean_over_replicas
from keras_attn.compat.replica_losses import ReplicaLosses
from keras_attn.depth import halting
from keras_attn.depth.halting import Halting, call_with_halting, give_halting
from keras_attn.depth.recurrent import Recurrent
from keras_attn.layers.block import takes_call_context
from keras_attn.ops.checks import check_choice, check_sizes

GRAVES, BASIC, ACCUMULATED = VARIANTS = "graves", "tensor2tensor", "tensor2tensor_accumulated"


@registry.register
class ACT(ReplicaLosses, Recurrent):
    """One block, repeated at each position until its halting probabilities sum to one.

        s^n = block(s^{n-1} + P^n),   h^n = sigmoid(w s^n + b),
        N = min(M, min{n: h^1 + ... + h^n >= 1 - epsilon}),   R = 1 - (h^1 + ... + h^{N-1}),
        output = h^1 s^1 + ... + h^{N-1} s^{N-1} + R s^N

    The weights sum to 1 at each position, also if the M-th step halts it. A halted position keeps
    its state, to which other positions still attend. The ponder loss, `ponder_loss` times the mean
    of N + R over the real positions of the batch, is added to the model's losses; its gradient
    makes positions halt sooner. `fit` and `evaluate` show the mean of N as the metric `NAME_steps`,
    except on JAX; NAME is the layer's name.

    In eager calls and TensorFlow graphs the loop ends when all positions have halted, in the time
    of a stack of max N blocks; outputs and gradients are those of M steps. All M are computed

    - if a call returns caches, states or scores of the steps;
    - in a graph, if the block recomputes activations, as a `Reversible` does;
    - by XLA, unless batch size and length are static; and by JAX's tracing.

    Padding never runs: its output is 0, and it counts in no mean. The step at which a position
    halts depends only on positions that it may attend to. Halting probabilities and sums are
    float32 at least.

    Cost: that of a `Stack` of as many blocks as steps are computed, with the weights of one.

    Use it for tasks whose positions need different amounts of computation, such as algorithms.

    Args:
        block: a `Block`, or a function that is called with 0 and returns one.
        max_steps: int. Most steps M.
        epsilon: float. A position halts at a sum of 1 - epsilon, so that one step can be enough.
        ponder_loss: float. Weight of the ponder loss.
        halting_bias: float. Initial b; the higher, the fewer steps at first.
        position: name or object of the position axis, such as `"timestep"`; None for none.
        variant: `"graves"`, as above; or Tensor2Tensor's, `"tensor2tensor"` for its
            `act_type="basic"` and `"tensor2tensor_accumulated"` for the other. There h^n is read
            from the block's input; a sum of exactly 1 - epsilon does not halt; the M-th step has
            weight h^M, so the weights may sum to less than 1 and N + R to M; states change after
            halting. Basic interpolates, output = p^n s^n + (1 - p^n) output; accumulated sums up.

    Call arguments and returns:
        As `Stack`, each step in the place of a layer. With `return_halting=True` the last of the
        tuple is a `Halting`, N and R of each position, (B, T): 0 at padding. It is free, and
        changes no output.

    Raises:
        ValueError: if `max_steps` < 1, `epsilon` or `ponder_loss` is below 0, `block` makes no
            layer, `position` or `variant` is unknown, or `remat` is True.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> encoder = keras_attn.depth.ACT(block, max_steps=6, position="timestep")
        >>> encoder(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: the ponder loss is a mean over positions, where Graves sums and
        Tensor2Tensor counts padding. Instead of Graves's flag of the first step, which `ACTCell`
        has, `Timestep` encodes the step.

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2, eq. 5 to 13;
        [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819), section 2.2;
        Tensor2Tensor's [universal_transformer_util.py](https://github.com/tensorflow/tensor2tensor/blob/bafdc1b/tensor2tensor/models/research/universal_transformer_util.py),
        `universal_transformer_act`.
    """

    decided_arguments = ("num_layers", "num_steps", "remat", "drop")
    weight_axes = {"halting/kernel": (), "halting/bias": ()}

    def __init__(
        self,
        block,
        max_steps,
        epsilon=0.01,
        ponder_loss=0.01,
        halting_bias=1.0,
        position=None,
        variant=GRAVES,
        **kwargs,
    ):
        check_sizes(max_steps=max_steps)
        super().__init__(block, max_steps, position, **kwargs)
        if self.remat:
            raise ValueError(
                "`remat` does not fit `ACT`, whose loop ends early. Received: remat=True."
            )
        if self.drop:
            raise ValueError(
                "`drop` does not fit `ACT`, whose loop runs one block for an unknown number of "
                f"steps; use the block's `dropout`. Received: drop={self.drop}."
            )
        halting.check_halting(epsilon=epsilon, ponder_loss=ponder_loss, halting_bias=halting_bias)
        check_choice(VARIANTS, variant=variant)
        self.max_steps = max_steps
        self.epsilon = epsilon
        self.ponder_loss = ponder_loss
        self.halting_bias = halting_bias
        self.variant = variant
        self.halting_unit = halting.halting_unit(halting_bias, self.compute_dtype)
        self.steps_taken = halting.steps_metric(self)

    def build(self, x_shape, context_shape=None):
        super().build(x_shape, context_shape)
        registry.build_once(self.halting_unit, x_shape)

    @takes_call_context
    def call(
        self,
        x,
        context=None,
        *,
        memory=None,
        memory_length=None,
        context_cache=None,
        return_hidden_states=False,
        return_halting=False,
        **arguments,
    ):
        arguments.update(
            memory=memory,
            memory_length=memory_length,
            context_cache=context_cache,
            return_hidden_states=return_hidden_states,
        )
        call = functools.partial(super().call, x, context, **arguments)
        if not return_halting:
            return call()
        return _append(*call_with_halting(self, call))

    def compute_output_spec(self, x, context=None, *, return_halting=False, **arguments):
        output = super().compute_output_spec(x, context, **arguments)
        if not return_halting:
            return output
        dtypes = "int32", halting.at_least_float32(self.compute_dtype)
        specs = (keras.KerasTensor(x.shape[:2], dtype) for dtype in dtypes)
        return _append(output, [Halting(*specs)])

    def _run(self, x, calls, keep_outputs):
        call = calls[0]
        caching, dtype = call.cache is not None, halting.at_least_float32(self.compute_dtype)
        real = None if caching else join_masks((x, call.padding_mask, "padding_mask"))
        running = ops.ones_like(x[..., 0], dtype=dtype) if real is None else ops.cast(real, dtype)
        # The state, the mean of the states so far, and the halting of positions.
        state = x, ops.zeros_like(x, dtype=dtype), halting.start(running)
        returns_states = caching or keep_outputs or call.memory is not None
        if returns_states or call.return_attention_scores:
            extras = []
            for number, call in enumerate(calls):
                state, extra = self._advance(number, state, call)
                extras.append({**extra, "output": state[0]} if keep_outputs else extra)
        else:
            extras = [{}] * self.max_steps
            state = bounded_while(
                lambda state: ops.any(state[-1].running > 0),
                lambda number, state: self._advance(number, state, call)[0],
                state,
                self.max_steps,
                reads=vars(call),
                add_loss=self.add_loss,
            )
        _, mean, progress = state
        give_halting(self, progress)
        if not caching:
            if self.ponder_loss:
                ponder = progress.steps + progress.remainder
                mean_ponder = mean_over_replicas(ponder, ops.sum(running))
                self.add_loss(self.ponder_loss * mean_ponder)
            steps, running = (ops.reshape(x, (-1,)) for x in (progress.steps, running))
            halting.show_steps(self.steps_taken, steps, running, call.training)
        return ops.cast(mean, self.compute_dtype), extras

    def _advance(self, number, state, call):
        """Take one more step: return the new state, and the block's scores and cache."""
        before, mean, progress = state
        x = self._block_input(number, before, call)
        after, extras = self._apply_block(0, x, call)
        is_graves = self.variant == GRAVES
        probability = self.halting_unit(after if is_graves else x)[..., 0]  # (B, T)
        is_last = ops.equal(number, self.max_steps - 1)
        halted, weight = halting.advance(
            progress, probability, is_last, self.epsilon, tensor2tensor=not is_graves
        )
        weight = ops.expand_dims(weight, -1)
        if self.variant == BASIC:
            mean = (1 - weight) * mean
        mean = mean + weight * ops.cast(after, mean.dtype)
        if is_graves:
            after = ops.where(ops.expand_dims(progress.running, -1) > 0, after, before)
        return (after, mean, halted), extras


def _append(results, halting):
    """Return `results`, a tensor or a tuple, as a tuple that ends with the last `Halting`."""
    return (*(results if isinstance(results, tuple) else (results,)), halting[-1])
