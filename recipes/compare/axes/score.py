"""Scores, and attention by the difference of two maps."""

from keras_attn import layers, scores

from ..model import PLAIN, Changes


def values(options):
    """Return the values; scores that hold positions replace the rotary ones."""

    def content(score):
        return Changes({"score": score})

    def positional(score):
        return Changes({"score": score, "position": None})

    # Few pairs are farther apart than half of the context: one bucket for each distance to there.
    buckets = max(4, options.context // 4 * 2)
    bucketed = scores.Disentangled(buckets, max(options.context, buckets // 2 + 2))
    return {
        "scaled_dot": PLAIN,
        "dot": content("dot"),
        "additive": content("additive"),
        "shared_qk": content("shared_qk"),
        "cosine": content(scores.Cosine()),
        "soft_cap": content(scores.SoftCap(scores.DotProduct(), 50.0)),
        "kernel": content(scores.Kernel()),
        "favor": content(scores.FAVOR(seed=0)),
        "differential": Changes(
            lambda index: {"layer": layers.DifferentialAttention, "layer_index": index}
        ),
        "relative": positional("relative"),
        "learned_relative": positional(scores.LearnedRelative(options.context)),
        "alibi": positional(scores.DotProduct() + scores.ALiBi()),
        "t5_bias": positional(scores.DotProduct(scaled=False) + scores.T5Bias()),
        "disentangled": positional(bucketed),
    }
