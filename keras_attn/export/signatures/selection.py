"""Selection of the graph functions that fit a model."""

from keras_attn.export.signatures.encoders import (
    ClassPredictor,
    SentenceEmbedder,
    TextClassifier,
    TextTagger,
    TokenEncoder,
)
from keras_attn.export.signatures.images import ImageEnlarger, ImageGenerator
from keras_attn.export.signatures.question_answerer import QuestionAnswerer
from keras_attn.export.signatures.series import SeriesForecaster, SeriesModel
from keras_attn.export.signatures.steps import SegmentSteps, TextStream, TokenStream
from keras_attn.export.signatures.text_generator import TextGenerator, TokenGenerator
from keras_attn.export.signatures.text_model import TextModel
from keras_attn.export.signatures.trajectories import TrajectoryFunctions
from keras_attn.export.signatures.translator import IdTranslator, Translator
from keras_attn.generation.decoding import check_model
from keras_attn.ops.checks import check_that

# The first that fits a model is taken, so those for a case stand before the general ones.
SIGNATURES = (
    TextModel,
    SentenceEmbedder,
    TextClassifier,
    QuestionAnswerer,
    TextTagger,
    SeriesForecaster,
    SeriesModel,
    TokenStream,
    TextStream,
    SegmentSteps,
    TokenEncoder,
    ClassPredictor,
    ImageGenerator,
    ImageEnlarger,
    TrajectoryFunctions,
    TokenGenerator,
    TextGenerator,
    IdTranslator,
    Translator,
)


def functions_of(model, options):
    """Return the `ModelFunctions` that fit a model and the `ExportOptions`."""
    kind = next((kind for kind in SIGNATURES if kind.fits(model, options)), None)
    check_own_options(model, options)
    if kind is None:
        raise ValueError(
            "`model` must be an `EncoderDecoder`, a `CausalLanguageModel`, a "
            "`MaskedLanguageModel`, a `Classifier`, a `Forecaster` or a `TrajectoryModel`, have "
            "their methods of decoding, or be a `keras.Model` of your own that reads token ids. "
            f"Received: {type(model).__name__}."
        )
    if kind.decodes:
        check_model(model)
    wanted = "None, but for classes of texts or words with a `tokenizer`"
    check_that(options.labels is None or kind.has_labels, wanted, labels=options.labels)
    wanted = "None, but for a forecaster of series"
    check_that(options.horizon is None or kind.has_horizon, wanted, horizon=options.horizon)
    return kind.from_options(model, options)


def check_own_options(model, options):
    """Refuse `kind`, `inputs` and `from_logits` for a model that is not the user's own."""
    refused = () if TextModel.fits(model, options) else ("kind", "inputs", "from_logits")
    for name in ("inputs",) if SeriesModel.fits(model, options) else refused:
        wanted = "None, but for a `keras.Model` of your own"
        check_that(getattr(options, name) is None, wanted, **{name: getattr(options, name)})
