"""Feed-forward networks, of which each position uses a few."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.inputs import join_masks, keras_mask
from keras_attn.backend.replicas import mean_over_replicas, replica_sum
from keras_attn.backend.row_groups import map_groups
from keras_attn.compat.replica_losses import ReplicaLosses
from keras_attn.feed_forward.feed_forward import FeedForward
from keras_attn.initializers import MatrixInitializer, redraw
from keras_attn.low_rank_kernels import LowRankKernels
from keras_attn.ops.checks import check_choice, check_numbers, check_sizes, check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.shapes import flatten_rows, size
from keras_attn.ops.sorting import permute, sort_order


@registry.register
class MixtureOfExperts(ReplicaLosses, LowRankKernels, registry.MaskedLayer):
    """Feed-forward networks of which a router chooses the best few for each position.

        y = sum_e w_e FFN_e(x) + g shared(x),   over the k experts with greatest logits l = x W_r

        renormalized:   w_e = p_e / (sum of the chosen p),   p = softmax(l)
        probability:    w_e = p_e

    The factor g is 1, or sigmoid(x w) with `use_shared_gate`.

    Without a `capacity` no position is dropped, and its output is the same alone and in any batch:
    assignments are sorted by expert, and each expert computes its own rows. The router is float32.
    In training the layer adds, as means over the real positions of all replicas,

        balance_loss E sum_e f_e mean(p_e) + z_loss mean(logsumexp(l)^2)

    where f_e is the share of assignments that went to e. E sum_e f_e mean(p_e) is least, 1, if all
    experts are used alike.
    Time O(T D (k F + E)), memory O(T k (D + F)), weights E times those of an expert.

    Use it for a model of many weights at the cost of a small one.

    Args:
        expert: an unbuilt `FeedForward` or `GatedFeedForward`: the settings of each expert.
        num_experts: int. Number of experts E.
        top_k: int. Number k of experts for each position.
        router: "renormalized" or "probability": the weights w_e of the chosen experts.
        balance_loss: float. Weight of the loss for uneven use.
        z_loss: float. Weight of the loss for large logits of the router.
        shared: layer that computes all positions, whose output is added; or None.
        use_router_bias: bool. If True, the router's logits have a bias.
        use_shared_gate: bool. If True, the output of `shared` is multiplied by a gate of the input.
        capacity: int. Most positions of a row that an expert computes, the first ones of a call;
            the others get 0 from it. None for no limit.

    Call arguments:
        x: (B, T, D).
        padding_mask: bool (B, T), True where a position is real; by default Keras's mask of `x`.
            Padding is not computed and counts in no loss; its output is that of `shared`, or 0.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `expert` is built or of another kind or has `chunks`, `top_k` exceeds
            `num_experts`, a gate has no `shared`, a size or the capacity is below 1, a loss below
            0, or `top_k` is 1 with "renormalized": the weight would always be 1, and the router
            would not learn.

    Example:
        >>> from keras_attn.layers import GatedFeedForward, MixtureOfExperts
        >>> layer = MixtureOfExperts(GatedFeedForward(64), num_experts=8, top_k=2)

    Differs from the paper: there is no noise, by default no capacity, and no loss for the
        importance of experts; the losses are those of Switch Transformer and ST-MoE. A capacity is
        one of each row and call, as in transformers: a step of decoding drops no position.

    Reference: [Shazeer et al., 2017](https://arxiv.org/abs/1701.06538), section 2;
        [Fedus et al., 2021](https://arxiv.org/abs/2101.03961), section 2.2, eq. 4 to 6;
        [Zoph et al., 2022](https://arxiv.org/abs/2202.08906), section 3.3, eq. 5.
    """

    takes_padding_mask = True
    weight_axes = {
        "router_kernel": (),
        "router_bias": (),
        "shared_gate": (),
        "gate_kernel": (None, None, "model"),
        "gate_bias": (None, "model"),
        "intermediate_kernel": (None, None, "model"),
        "intermediate_bias": (None, "model"),
        "output_kernel": (None, "model"),
        "output_bias": (),
    }

    def __init__(
        self,
        expert,
        num_experts,
        top_k=2,
        router="renormalized",
        balance_loss=0.01,
        z_loss=0.0,
        shared=None,
        use_router_bias=False,
        use_shared_gate=False,
        capacity=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        expert = registry.revive(expert)
        is_template = _overrides_join_only(expert) and not expert.built and expert.chunks == 1
        wanted = "an unbuilt `FeedForward` with chunks=1 that does not override `call`"
        check_that(is_template, wanted, expert=expert)
        check_sizes(num_experts=num_experts, top_k=top_k)
        check_choice(("renormalized", "probability"), router=router)
        if capacity is not None:
            check_sizes(capacity=capacity)
        check_numbers(0, balance_loss=balance_loss, z_loss=z_loss)
        check_that(top_k <= num_experts, f"at most `num_experts`, {num_experts}", top_k=top_k)
        if top_k == 1 < num_experts and router == "renormalized":
            raise ValueError(
                "One expert has a renormalized weight of 1, so the router would not learn; use "
                'router="probability". Received: top_k=1, router="renormalized".'
            )
        # Not tracked by Keras, whose `quantize` refuses a layer that is never built.
        object.__setattr__(self, "expert", expert)
        self.num_experts = num_experts
        self.top_k = top_k
        self.router = router
        self.balance_loss = balance_loss
        self.z_loss = z_loss
        self.shared = registry.revive(shared)
        self.use_router_bias = bool(use_router_bias)
        has_shared = self.shared is not None or not use_shared_gate
        check_that(has_shared, "False without `shared`", use_shared_gate=use_shared_gate)
        self.use_shared_gate = bool(use_shared_gate)
        self.capacity = capacity
        self.drop = Dropout(expert.dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        width, hidden = x_shape[-1], self.expert.intermediate_dim
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.router_kernel = self.add_weight(
            (width, self.num_experts), normal, name="router_kernel", autocast=False
        )
        if self.use_router_bias:
            self.router_bias = self.add_weight(
                (self.num_experts,), "zeros", name="router_bias", autocast=False
            )
        self.biases = []
        for name in self.expert.INPUTS:
            self._add_dense(name, width, hidden, self.expert.kernel_initializer)
        last = self.expert.output_initializer or self.expert.kernel_initializer
        self._add_dense("output", hidden, width, last)
        if self.shared is not None:
            registry.build_once(self.shared, x_shape)
        if self.use_shared_gate:
            self.shared_gate = self.add_weight((width, 1), redraw(normal), name="shared_gate")

    def _add_dense(self, name, rows, columns, initializer):
        """Add one kernel, and one bias, for all experts."""
        expert, count = self.expert, self.num_experts
        initializer = MatrixInitializer(
            initializer, (rows, columns), (rows, count, columns), count, (1, 0, 2)
        )
        kernel = self.add_weight(
            (count, rows, columns),
            initializer,
            name=f"{name}_kernel",
            regularizer=expert.kernel_regularizer,
            constraint=expert.kernel_constraint,
        )
        setattr(self, f"{name}_kernel", kernel)
        if expert.use_bias:
            self.biases.append(
                self.add_weight(
                    (count, columns),
                    redraw(expert.bias_initializer),
                    name=f"{name}_bias",
                    regularizer=expert.bias_regularizer,
                    constraint=expert.bias_constraint,
                )
            )

    @property
    def num_matrices(self):
        """The number of matrices that each kernel holds."""
        return self.num_experts

    @property
    def kernel_constraint(self):
        """The constraint of each kernel."""
        return self.expert.kernel_constraint

    def kernel_names(self):
        """Return the names of the kernels, in the order of computation."""
        return [*self.expert.INPUTS, "output"]

    def kernel_axes(self, name):
        """Return the input axes and the output axes of each matrix of a kernel."""
        _, rows, columns = getattr(self, f"{name}_kernel").shape
        return (rows,), (columns,)

    @property
    def kernels(self):
        """The kernels of all experts, each (E, rows, columns), in the order of computation."""
        names = self.kernel_names()
        if self.quantization_mode is not None:
            return [self.restored(f"{name}_kernel") for name in names]
        kernels = {name: getattr(self, f"{name}_kernel") for name in names}
        return [self.updated(n, x) if n in self.updates else x for n, x in kernels.items()]

    def call(self, x, padding_mask=None, training=None):
        padding_mask = keras_mask(x) if padding_mask is None else padding_mask
        real = join_masks((x, padding_mask, "padding_mask"))  # (B, T)
        real = None if real is None else ops.reshape(real, (-1,))
        rows, unflatten = flatten_rows(x)  # (n, D)
        logits = ops.matmul(ops.cast(rows, self.router_kernel.dtype), self.router_kernel)
        if self.use_router_bias:
            logits = logits + self.router_bias
        log_sum = ops.logsumexp(logits, axis=-1, keepdims=True)
        best, chosen = ops.top_k(logits, self.top_k)  # (n, k)
        is_taken = None if real is None else ops.expand_dims(real, 1)  # (n, 1), or (n, k)
        counts = self._counts(chosen, is_taken)
        if training:
            self._add_losses(logits, log_sum, counts, real)
        if self.capacity is not None:
            is_taken = self._within_capacity(chosen, is_taken, size(x, -2))
            counts = self._counts(chosen, is_taken)
        is_renormalized = self.router == "renormalized"
        best_sum = ops.logsumexp(best, axis=-1, keepdims=True) if is_renormalized else log_sum
        weights = ops.exp(best - best_sum)
        weights = ops.cast(weights, self.compute_dtype)
        output = self._mix(rows, chosen, counts, weights, is_taken, training)
        output = unflatten(output)
        return output if self.shared is None else output + self._compute_shared(x, training)

    def _compute_shared(self, x, training):
        output = self.shared(x, training=training)
        if not self.use_shared_gate:
            return output
        return ops.sigmoid(ops.matmul(x, ops.cast(self.shared_gate, x.dtype))) * output

    def _counts(self, chosen, is_taken):
        """Return the number of rows that each expert computes, int32 (E,)."""
        return ops.sum(ops.cast(self._assignments(chosen, is_taken), "int32"), axis=(0, 1))

    def _assignments(self, chosen, is_taken):
        """Return which of all experts each assignment goes to, bool (n, k, E)."""
        is_chosen = ops.expand_dims(chosen, -1) == ops.arange(self.num_experts, dtype=chosen.dtype)
        if is_taken is None:
            return is_chosen
        return ops.logical_and(is_chosen, ops.expand_dims(is_taken, -1))

    def _within_capacity(self, chosen, is_taken, length):
        """Return which assignments experts compute, bool (n, k), in the order of each row."""
        assigned = ops.cast(self._assignments(chosen, is_taken), "int32")
        by_row = ops.reshape(assigned, (-1, length * self.top_k, self.num_experts))
        rank = ops.reshape(ops.cumsum(by_row, axis=1), (-1, self.top_k, self.num_experts))
        return ops.any(ops.logical_and(assigned > 0, rank <= self.capacity), axis=-1)

    def _add_losses(self, logits, log_sum, counts, real):
        if real is None:
            real = ops.ones_like(log_sum)
        else:
            real = ops.expand_dims(ops.cast(real, log_sum.dtype), 1)
        number = ops.sum(real)
        if self.balance_loss:
            total = ops.maximum(replica_sum(number), 1)
            share = replica_sum(ops.cast(counts, log_sum.dtype)) / (self.top_k * total)
            probabilities = ops.sum(real * ops.exp(logits - log_sum), axis=0)  # (E,)
            uneven = mean_over_replicas(share * probabilities, number)
            self.add_loss(self.balance_loss * self.num_experts * uneven)
        if self.z_loss:
            self.add_loss(self.z_loss * mean_over_replicas(real * ops.square(log_sum), number))

    def _mix(self, rows, chosen, counts, weights, is_taken, training):
        """Return the weighted sum (n, D) of the experts' outputs."""
        if is_taken is not None:
            # What no expert computes is sorted behind all of them.
            chosen = ops.where(is_taken, chosen, self.num_experts)
        order, inverse = sort_order(ops.reshape(chosen, (-1,)))
        by_expert = permute(rows, order, inverse, copies=self.top_k)  # (n k, D)
        parameters = [ops.convert_to_tensor(kernel) for kernel in self.kernels]
        last = len(parameters) - 1
        parameters += [ops.expand_dims(ops.convert_to_tensor(bias), 1) for bias in self.biases]

        def compute(rows, *parameters):
            kernels, biases = parameters[: last + 1], parameters[last + 1 :]

            def dense(x, n):
                x = ops.matmul(x, kernels[n])
                return x + biases[n] if biases else x

            hidden = self.expert.join(*(dense(rows, n) for n in range(last)))
            return dense(self.drop(hidden, training=training), last)

        by_expert = map_groups(compute, by_expert, counts, parameters)
        outputs = permute(by_expert, inverse, order)
        outputs = ops.reshape(outputs, (-1, self.top_k, rows.shape[-1]))
        return ops.sum(ops.expand_dims(weights, -1) * outputs, axis=1)

    def call_products(self, output_shape, x, **others):
        """Return the multiply-adds of a call for the shape of `x`, without padding."""
        row_products = math.prod(self.router_kernel.shape)
        row_products += self.top_k * sum(math.prod(kernel.shape[1:]) for kernel in self.kernels)
        if self.shared is not None:
            kernels = [weight for weight in self.shared.weights if len(weight.shape) > 1]
            row_products += sum(math.prod(kernel.shape) for kernel in kernels)
        if self.use_shared_gate:
            row_products += math.prod(self.shared_gate.shape)
        return math.prod(x[:-1]) * row_products

    def hidden_products(self, output_shape, x, **others):
        """Return those of `call_products` that multiply what the layer itself has computed."""
        products = math.prod(x[:-1]) * self.top_k * math.prod(self.kernels[-1].shape[1:])
        if isinstance(self.shared, FeedForward):
            products += self.shared.hidden_products(output_shape, x)
        return products

    def compute_output_shape(self, x_shape):
        return x_shape


def _overrides_join_only(expert):
    """Return True if a layer is a `FeedForward` whose class overrides `join` at most."""
    own = (type(expert).call, type(expert)._apply) if isinstance(expert, FeedForward) else None
    return own == (FeedForward.call, FeedForward._apply)
