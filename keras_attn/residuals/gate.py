"""Gates between a block's input and the sublayer's output."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.initializers import MatrixInitializer
from keras_attn.ops.checks import check_choice, check_numbers, check_shape
from keras_attn.ops.shapes import flatten_rows
from keras_attn.residuals.residual import Residual

# For each kind the number of matrices that multiply x, y, and r x.
KINDS = {
    "gru": (2, 3, 1),
    "input": (1, 0, 0),
    "output": (1, 0, 0),
    "highway": (1, 0, 0),
    "sigmoid_tanh": (0, 2, 0),
    "sum": (0, 0, 0),
}


@registry.register
class Gate(Residual):
    """Normalise the sublayer's input, and join its output to the stream by a learned gate.

        before(x) = norm(x),   after(x, y) = g(x, relu(y))

        gru:            g(x, y) = (1 - z) x + z tanh(W_g y + U_g (r x)),
                        r = sigmoid(W_r y + U_r x),   z = sigmoid(W_z y + U_z x - b)
        input:          g(x, y) = sigmoid(W x) x + y
        output:         g(x, y) = x + sigmoid(W x - b) y
        highway:        g(x, y) = s x + (1 - s) y,   s = sigmoid(W x + b)
        sigmoid_tanh:   g(x, y) = x + sigmoid(W y - b) tanh(U y)
        sum:            g(x, y) = x + y,   the paper's TrXL-I

    Products without a matrix are elementwise; matrices are (D, D); the bias b (D,) is learned and
    starts at `bias`. The larger b, the closer g is to x (`input` and `sum` have no b), so a policy
    starts without a memory. The relu separates two linear layers: the sublayer's last and the
    gate's first. A stack of such blocks ends without a norm. Time O(T D^2): six matrices for `gru`,
    two for `sigmoid_tanh`, none for `sum`, one for the other kinds.

    Use it for reinforcement learning, where a Transformer without gates is hard to train.

    Args:
        kind: "gru", "input", "output", "highway", "sigmoid_tanh" or "sum".
        bias: float. Initial value of b. The paper has 2 for `gru` and 1 for the other kinds.
        kernel_initializer: of the matrices.
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Raises:
        ValueError: if `kind` is unknown, `bias` is no number, or x and y differ in shape.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.Gate("highway", bias=1.0)

    Differs from the paper: the default `bias` is that of `gru` for all kinds. The paper does not
        give the initial matrices.

    Reference: [Parisotto et al., 2019](https://arxiv.org/abs/1910.06764), sections 3.1 and 3.2; the
        initial biases: section 4.3.4.
    """

    takes_rows = True

    weight_axes = {"x_kernel": (), "y_kernel": (), "candidate_kernel": (), "gate_bias": ()}

    def __init__(self, kind="gru", bias=2.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_choice(tuple(KINDS), kind=kind)
        check_numbers(bias=bias)
        self.kind = kind
        self.bias = float(bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, x_shape, y_shape=None):
        super().build(x_shape)
        width = x_shape[-1]
        names = "x_kernel", "y_kernel", "candidate_kernel"
        for name, count in zip(names, KINDS[self.kind], strict=True):
            if count:
                shape = (width, width)
                square = MatrixInitializer(self.kernel_initializer, shape, count=count)
                setattr(self, name, self.add_weight((width, count * width), square, name=name))
        if self.kind not in ("input", "sum"):
            start = keras.initializers.Constant(self.bias)
            self.gate_bias = self.add_weight((width,), start, name="gate_bias")

    def before(self, x):
        return self.norm(x)

    def call(self, x, y):
        check_shape(y, "y", tuple(x.shape))
        x, unflatten = flatten_rows(x)
        y, _ = flatten_rows(ops.relu(y))
        of_x, of_y, _ = KINDS[self.kind]
        from_x = ops.split(ops.matmul(x, self.x_kernel), of_x, axis=-1) if of_x else ()
        from_y = ops.split(ops.matmul(y, self.y_kernel), of_y, axis=-1) if of_y else ()
        return unflatten(self._join(x, y, from_x, from_y))

    def _join(self, x, y, from_x, from_y):
        """Compute g(x, y) from the products of x and of y with their matrices."""
        match self.kind:
            case "gru":
                reset = ops.sigmoid(from_y[0] + from_x[0])
                update = ops.sigmoid(from_y[1] + from_x[1] - self.gate_bias)
                candidate = ops.tanh(from_y[2] + ops.matmul(reset * x, self.candidate_kernel))
                return (1 - update) * x + update * candidate
            case "input":
                return ops.sigmoid(from_x[0]) * x + y
            case "output":
                return x + ops.sigmoid(from_x[0] - self.gate_bias) * y
            case "highway":
                carried = ops.sigmoid(from_x[0] + self.gate_bias)
                return carried * x + (1 - carried) * y
            case "sigmoid_tanh":
                return x + ops.sigmoid(from_y[0] - self.gate_bias) * ops.tanh(from_y[1])
        return x + y
