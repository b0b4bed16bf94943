"""Cost of whole models with sparse attention and of their baselines with full attention."""

from . import requirements
from .card import card_parser, execute, new_card, positive
from .depth import COLUMNS
from .harness import Contender, measure

TARGET = f"{__package__}.contenders.gradient:language_model_step"
CONTEXTS = (2048, 8192)
BASELINES = {
    "reformer": ("--with=attention=('local','lsh')", "--with=attention=('local','full')"),
    "sparse_transformer": (None, "--full-attention"),
}
METHOD = (
    "A training step of the models of `recipes.language_model` (6 layers of width 256, one text of "
    "characters, dropout 0.1), float32, in a plain graph (`tf.function`, no XLA): the gradient by "
    "all weights, each of which is summed up and let go at once. **dense** is the same model whose "
    "sparse layers attend to all keys before them, by the implementation that `auto` chooses for "
    "the length; in `reformer` every second layer is local in both. Each contender is a process of "
    "its own. **MB of activations** is the most that TensorFlow's allocator gives out for tensors "
    "in a step, less what it held before. Times are those of {repetitions} turns."
)


def contenders(model, context):
    """Return the sparse model and its dense baseline."""
    return [
        Contender(
            f"{model}, {kind}, {context:,}",
            TARGET,
            {"options": ["--model", model, "--context", str(context), *([more] if more else [])]},
        )
        for kind, more in zip(("sparse", "dense"), BASELINES[model], strict=True)
    ]


def main():
    parser = card_parser("sparse_models", __doc__, repetitions=3)
    parser.add_argument("--models", nargs="+", choices=list(BASELINES), default=list(BASELINES))
    parser.add_argument("--contexts", nargs="+", type=positive, default=CONTEXTS)
    arguments = parser.parse_args()
    card = new_card(arguments, "Sparse models beside dense ones", METHOD, "tokens", COLUMNS)
    for context in arguments.contexts:
        for model in arguments.models:
            print(model, context, flush=True)
            pair = contenders(model, context)
            rows, skipped = measure(pair, arguments.repetitions)
            names = [contender.name for contender in pair]
            comparisons = [requirements.memory_growth(rows, *names, at_most=1.0)]
            comparisons.append(requirements.growth(rows, *names))
            card.add(f"`{model}`, {context:,} tokens", rows, skipped, comparisons)
            card.write(arguments.out)
    print(card.markdown())


if __name__ == "__main__":
    execute(main)
