"""Auxiliary losses in training: of every layer, and of targets further ahead."""

import collections

import keras
from keras import ops

from keras_attn.attention.inputs import keras_mask
from keras_attn.backend.replicas import replica_sum, share_of_sum
from keras_attn.depth.reversible import Reversible
from keras_attn.layers import Block
from keras_attn.models.assembly import divide_outputs
from keras_attn.ops.checks import (
    check_choice,
    check_numbers,
    check_shape,
    check_sizes,
    check_that,
)
from keras_attn.ops.shapes import flatten_rows
from keras_attn.ops.token_losses import crossentropy, element_weights, known_labels, token_weights
from keras_attn.registry import BuildsOptimizer, Configurable, register, revive

Predictions = collections.namedtuple("Predictions", ["logits", "hidden_states"])


@register
class AuxiliaryLosses(Configurable, BuildsOptimizer, keras.Model):
    """Train a causal model with losses of every layer and of several targets a position.

        loss = loss_n1 + sum_{k >= 2} c_k CE_nk + sum_{l < n} a_l(p) sum_k c_k CE_lk,
        CE_lk = mean over t of -log softmax(h_l(t) W_lk + b_lk)(y_{t+k-1}),   p = step / total_steps

    where n is the number of layers, y_t the label of position t, which is the next token, and
    loss_n1 the compiled loss of the model's own logits. Every mean is over all positions, as in the
    first auxiliary loss of the paper. a_l(p) is 1 until p = l / (2n) and then 0 ("step"), so no
    intermediate loss is left after half of the training. Each layer and each k has a classifier of
    its own. The last k - 1 positions of a row have no target y_{t+k-1} and do not count.

    It wraps the model that is used afterwards: `fit` the wrapper, and take `.model`, which has no
    classifiers, to generate and export. `evaluate` and `predict` are those of the model. The step
    is a weight that only training increments, saved and restored with the others. Each loss costs
    a softmax, O(B T D V), until its a_l is 0; then it is not computed. Losses are float64 where
    logits are, else float32, and divided by the tokens of all replicas.

    With `block`, target k >= 2 of the last layer has a block of its own, and the classifier is the
    model's: CE_nk reads block_k(h_{n-1}), as the model itself reads its last block. This is the
    multi-token prediction of Gloeckle et al., with `schedule=None` and `target_weight=1.0`.

    Use it for deep character models, and for language models that learn from several next tokens.

    Args:
        model: a functional model whose output is logits and whose `depth` is a
            `keras_attn.depth.Stack`, such as `keras_attn.models.CausalLanguageModel`.
        total_steps: int. The batches of the whole training.
        num_targets: int. Number of targets K of each position.
        target_weight: float. c_k of the targets after the next token, for which c_1 = 1.
        schedule: "step"; "linear", a_l = max(0, 1 - 2n p / l); or None, no intermediate losses.
        targets_on_intermediate: bool. True if intermediate layers predict all targets, False for
            the next token only.
        shared_heads: bool. True if all layers use one classifier for each target, for the next
            token that of the model.
        ignore_class: int. Tokens with this label do not count.
        block: function from k = 2 .. K to a causal `keras_attn.layers.Block`, or a list of K - 1
            blocks; None for no blocks.

    Call arguments:
        inputs: as the model's.

    Returns:
        The model's logits (B, T, V); while `fit` trains, with the outputs of the layers and blocks.

    Raises:
        ValueError: if `model` has no such depth or output, a size is below 1, `target_weight` is
            below 0, or `schedule` is unknown; with `block`, if it does not give K - 1 blocks, or
            the model has one layer.

    Example:
        >>> import keras_attn, numpy as np
        >>> from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy
        >>> model = keras_attn.models.gpt(vocabulary_size=30, num_layers=2, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> trained = AuxiliaryLosses(model, total_steps=100)
        >>> trained.compile("adam", LabelSmoothedCrossentropy(0.0))
        >>> text = np.random.default_rng(0).integers(1, 30, (4, 9))
        >>> inputs = {"token_ids": text[:, :-1]}
        >>> history = trained.fit(inputs, text[:, 1:], epochs=5, verbose=0)
        >>> trained.progress
        0.05
        >>> trained.model.count_params() < trained.count_params()
        True

    Differs from the paper: none with the defaults; "linear" and sharing are not in it.

    Reference: [Al-Rfou et al., 2018](https://arxiv.org/abs/1808.04444), "Auxiliary Losses";
        `block`: [Gloeckle et al., 2024](https://arxiv.org/abs/2404.19737), section 2.
    """

    weight_axes = {"step": ()}

    def __init__(
        self,
        model,
        total_steps,
        num_targets=2,
        target_weight=0.5,
        schedule="step",
        targets_on_intermediate=True,
        shared_heads=False,
        ignore_class=0,
        block=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(model, dict):
            model = keras.saving.deserialize_keras_object(model)
        check_sizes(total_steps=total_steps, num_targets=num_targets)
        check_numbers(0, target_weight=target_weight)
        check_choice(("step", "linear", None), schedule=schedule)
        self._run, self._classify = split_model(model)
        self.model = model
        self.total_steps = total_steps
        self.num_targets = num_targets
        self.target_weight = target_weight
        self.schedule = schedule
        self.targets_on_intermediate = targets_on_intermediate
        self.shared_heads = shared_heads
        self.ignore_class = ignore_class
        self.num_layers = model.depth.num_layers
        self.step = self.add_weight(
            (), "zeros", "int", trainable=False, aggregation="only_first_replica", name="step"
        )
        self.block = None if block is None else self._blocks(block)
        # Each layer's targets k, the indices of the states that are read, and those of their
        # classifiers, None for the model's own.
        self._tasks, names = {}, {}
        for layer, k in self._layers_and_targets():
            state, index = layer - 1, None
            if self.block is not None and layer == self.num_layers:
                state = layer + k - 2
            elif not (shared_heads and k == 1):
                name = f"layer_{self.num_layers if shared_heads else layer}_target_{k}"
                index = names.setdefault(name, len(names))
            self._tasks.setdefault(layer, []).append((k, state, index))
        width = model.output.shape[-1]
        self.heads = [
            divide_outputs(keras.layers.Dense(width, dtype=model.depth.dtype_policy, name=name))
            for name in names
        ]
        for part in (*self.heads, *(self.block or ())):
            if not part.built:
                part.build(model.depth.output.shape)
        self.built = True

    def _blocks(self, block):
        """Return the blocks of the targets after the next token."""
        further = range(2, self.num_targets + 1)
        blocks = [block(k) for k in further] if callable(block) else [revive(b) for b in block]
        fits = len(blocks) == len(further) and all(isinstance(b, Block) for b in blocks)
        check_that(fits, "a function from k to a `Block`, or a list of K - 1 blocks", block=block)
        if self.num_layers < 2:
            raise ValueError(
                "`block` needs a model of two layers or more: the blocks read what its last layer "
                f"reads. Received: a model of {self.num_layers} layer."
            )
        return blocks

    def _layers_and_targets(self):
        """Yield the pairs (l, k) with a loss besides the model's own, which is (n, 1)."""
        last, targets = self.num_layers, range(1, self.num_targets + 1)
        if self.schedule is not None:
            distances = targets if self.targets_on_intermediate else (1,)
            yield from ((layer, k) for layer in range(1, last) for k in distances)
        yield from ((last, k) for k in targets if k > 1)

    @property
    def progress(self):
        """Completed fraction p of the training."""
        return int(self.step.numpy()) / self.total_steps

    def call(self, inputs, training=None):
        if not training:
            return self.model(inputs, training=training)
        segment_inputs = getattr(self.model, "segment_inputs", ())
        if isinstance(inputs, dict) and not inputs.keys().isdisjoint(segment_inputs):
            raise ValueError(
                "Rows of several sequences have no auxiliary losses: targets further ahead would "
                f"be tokens of the next sequence. Received: inputs {', '.join(sorted(inputs))}."
            )
        logits, states = self._run(inputs)
        shared = {"padding_mask": keras_mask(states[-1]), "training": True}
        further = [block(states[-2], **shared) for block in self.block or ()]
        return Predictions(logits, states + further)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, Predictions):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        labels = ops.convert_to_tensor(y)
        check_shape(labels, "y", tuple(y_pred.logits.shape[:2]))
        loss = super().compute_loss(x, y, y_pred.logits, sample_weight, training)
        auxiliary_loss = self._auxiliary_loss(y_pred.hidden_states, labels, sample_weight)
        self.step.assign(self.step + 1)
        return loss + ops.cast(auxiliary_loss, loss.dtype)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if isinstance(y_pred, Predictions):
            y_pred = y_pred.logits
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _auxiliary_loss(self, hidden_states, labels, sample_weight):
        """Return all losses but that of the model's own logits: this replica's share."""
        dtype = keras.backend.result_type(self.model.depth.compute_dtype, "float32")
        targets = range(1, self.num_targets + 1)
        targets = {k: self._target(labels, k, sample_weight, dtype) for k in targets}
        shares = layer_shares(self.step, self.total_steps, self.num_layers, self.schedule)
        shares = ops.cast(shares, dtype)

        def loss(layer, share=1.0):
            total = 0.0
            for k, state, index in self._tasks[layer]:
                hidden = hidden_states[state]
                # In rows: the gradient of a product of three axes with two needs sizes that XLA
                # cannot infer behind a condition.
                rows, _ = flatten_rows(hidden)
                logits = self._classify(hidden) if index is None else self.heads[index](rows)
                labels, weights = targets[k]
                losses = ops.cast(crossentropy(labels, flatten_rows(logits)[0]), dtype)
                total += share * ops.sum(weights * losses)
            return total

        def loss_until_over(layer):
            share, over = shares[layer - 1], ops.zeros((), dtype)
            return ops.cond(share > 0.0, lambda: loss(layer, share), lambda: over)

        last = self.num_layers
        losses = (loss(n) if n == last else loss_until_over(n) for n in self._tasks)
        return share_of_sum(sum(losses))

    def _target(self, labels, k, sample_weight, dtype):
        """Return target k of each position (B T,), and c_k times its weight in the mean."""

        def ahead(x, beyond):
            return ops.pad(x, ((0, 0), (0, k - 1)), constant_values=beyond)[:, k - 1 :]

        weights = ahead(element_weights(labels, sample_weight, dtype), 0.0)
        has_target = ahead(ops.ones_like(weights), 0.0)
        labels = ahead(labels, self.ignore_class or 0)
        real = has_target * token_weights(labels, self.ignore_class, dtype=dtype)
        count = ops.maximum(replica_sum(ops.sum(real)), 1.0)
        share = 1.0 if k == 1 else self.target_weight
        labels, weights = known_labels(labels, self.ignore_class), share * real * weights / count
        return ops.reshape(labels, (-1,)), ops.reshape(weights, (-1,))


def split_model(model):
    """Return two functions that run the model's layers as in training.

    The first returns logits and each layer's output; the second logits of any layer's output.
    """
    depth = getattr(model, "depth", None)
    if isinstance(depth, Reversible):
        raise ValueError(
            "`model` must give each layer's output, which a `Reversible` depth does not keep. "
            f"Received: model={model!r}."
        )
    if not hasattr(depth, "blocks") or not isinstance(model.output, keras.KerasTensor):
        raise ValueError(
            "`model` must give logits and have a `depth` that is a `Stack`, as a "
            f"`CausalLanguageModel` without a memory. Received: model={model!r}."
        )
    before = keras.Model(model.input, depth.input)
    after = keras.Model(depth.output, model.output)
    after.supports_masking = True

    def run(inputs):
        x = before(inputs, training=True)
        x, hidden_states = depth(x, return_hidden_states=True, training=True)
        # The last layer's is what the model itself reads, after a closing norm, if there is one.
        return after(x, training=True), [*hidden_states[:-1], x]

    def classify(hidden):
        return after(hidden if depth.norm is None else depth.norm(hidden), training=True)

    return run, classify


def layer_shares(step, total_steps, num_layers, schedule):
    """Return a_l of the layers l = 1 .. n - 1 at a step, float32 (n - 1,)."""
    # The step at which each layer's losses end, rounded up to a whole step for "step", so that no
    # rounding of p can move a boundary.
    ends = [total_steps * layer / (2 * num_layers) for layer in range(1, num_layers)]
    if schedule == "linear":
        return ops.maximum(1.0 - ops.cast(step, "float32") / ops.array(ends, "float32"), 0.0)
    first_without = [-(-total_steps * layer // (2 * num_layers)) for layer in range(1, num_layers)]
    return ops.cast(ops.cast(step, "int32") < ops.array(first_without, "int32"), "float32")
