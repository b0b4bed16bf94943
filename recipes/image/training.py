"""One run of the recipe: images, model, training, evaluation, samples, export and card."""

import time

import keras
import numpy as np

from keras_attn import generation, losses, metrics, models

from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import adam
from ..common.plots import write_image_grid
from ..common.progress import evaluate_verbosity
from ..common.run import TrainingRun
from .architectures import build
from .batches import OrderedBatches, ShuffledBatches
from .data import Images, digest, read_images, shrink
from .shapes import CLASSIFIERS, DATASETS, ENLARGER, small_shape


def run(options, started):
    if options.model in CLASSIFIERS:
        kind = ClassifierRun
    else:
        kind = EnlargerRun if options.model == ENLARGER else ImageRun
    kind(options).execute(started)


class ImagesRun(TrainingRun):
    """Training, evaluation and export of a model that reads images.

    A subclass defines `_compile()`, which compiles `model`, and `_encode`, a function of the images
    and labels of a batch that returns inputs and targets.
    """

    metric = None
    # True if the loss counts all rows alike, so that the devices must divide each batch.
    needs_whole_batches = False

    def __init__(self, options):
        self.kind = DATASETS[options.dataset]
        self.splits = read_images(options.dataset, options.data_dir, options.seed)
        super().__init__(options, {"sha256": digest(self.splits), **options.identity()})
        with self.scope():
            self.model = build(options, self.kind)
            self._compile()
        if self.needs_whole_batches:
            self.check_batch("batch_size")

    def training_data(self):
        options = self.options
        steps = options.steps // options.epochs
        images = self.splits["train"]
        train = ShuffledBatches(images, options.batch_size, steps, options.seed, self._encode)
        number = min(options.valid_images, len(self.splits["valid"]))
        if self.needs_whole_batches:  # the devices must divide the last batch too
            number -= number % self.devices.num_replicas_in_sync
        return EpochDataset(train), self._held_out("valid", number)[0]

    def data_bytes(self):
        # Splits share an array.
        arrays = {id(images.array): images.array for images in self.splits.values()}
        return sum(array.nbytes for array in arrays.values())

    def evaluate(self):
        """Return the metric of the test split."""
        data, number = self._held_out("test", self.options.test_images)
        started = time.monotonic()
        measured = self.model.evaluate(data.data(), verbose=evaluate_verbosity(), return_dict=True)
        return {
            "test": {
                "metric": self.metric,
                "value": measured[self.metric],
                "signature": f"{number} images",
                "images": number,
                "seconds": round(time.monotonic() - started, 1),
            }
        }

    def card_entries(self):
        return {
            "task": self.options.dataset,
            "images": {name: len(images) for name, images in self.splits.items()},
        }

    def _held_out(self, split, most):
        """Return an `EpochDataset` of at most `most` images, and their number."""
        array, order, labels = self.splits[split]
        images = Images(array, order[:most], labels)
        batches = OrderedBatches(images, self.options.batch_size, self._encode)
        return EpochDataset(batches, free_axes=(0,)), len(images)


class ImageRun(ImagesRun):
    """Run of a model of images, from which it draws samples."""

    metric, curve = "bits_per_dim", "val_bits_per_dim"

    def sample(self):
        """Generate the images that the export generates from the same seed; write `samples.png`."""
        from keras_attn import export

        generator = export.ImageGenerator(self.model, self._strategy())
        images = generator.generate(self.options.samples, self.options.seed)["images"].numpy()
        write_image_grid(images, self.kind.num_values, self.path("samples.png"))
        return images

    def export(self):
        super().export(strategy=self._strategy())

    def card_entries(self):
        """Return entries of the card, and write samples."""
        self.sample()
        return {**super().card_entries(), "vocabulary_size": self.tokens.vocabulary_size}

    def summary(self, card):
        yield f"Samples: {self.path('samples.png')}"
        yield from super().summary(card)

    def _encode(self, images, labels):
        """Return the tokens that the model reads, and those that it predicts."""
        encode = self.tokens.values if self._likelihood else self.tokens.encode
        inputs, targets = self.tokens.inputs(images), encode(images)
        return {"token_ids": np.asarray(inputs)}, np.asarray(targets)

    def _mixture(self):
        """Return the likelihood of whole pixels; None for the softmax of a value."""
        if not self.tokens.whole_pixels:
            return None
        return losses.MixtureOfLogistics(
            self.options.num_mixtures, self.tokens.image_shape[2], self.tokens.num_values
        )

    def _strategy(self):
        """Return the sampling strategy; None for the likelihood's default."""
        temperature = self.options.temperature
        return None if temperature == 1 else generation.Sample(temperature)

    def _compile(self):
        self.tokens = models.ImageTokens.of(self.model)
        self._likelihood = self._mixture()
        self.needs_whole_batches = self._likelihood is not None
        self.model.compile(
            adam(self.options),
            loss=self._likelihood or losses.LabelSmoothedCrossentropy(0.0),
            weighted_metrics=[metrics.BitsPerDim(likelihood=self._likelihood)],
            jit_compile=self.jit_compile,
        )


class EnlargerRun(ImageRun):
    """Run of a model that enlarges images, trained on images and their means over squares."""

    def sample(self):
        """Enlarge test images; write each one's small image, sample and truth side by side."""
        from keras_attn import export

        truth = self.splits["test"].take(range(self.options.samples)).astype("int32")
        small = self._shrink(truth)
        enlarger = export.ImageEnlarger(self.model, self._strategy())
        images = enlarger.generate(small, self.options.seed)["images"].numpy()
        factor = self.options.factor
        enlarged = small.repeat(factor, axis=1).repeat(factor, axis=2)
        rows = np.stack([enlarged, images, truth], axis=1).reshape(-1, *self.kind.image_shape)
        write_image_grid(rows, self.kind.num_values, self.path("samples.png"), columns=12)
        return images

    def _encode(self, images, labels):
        inputs, targets = super()._encode(images, labels)
        source_ids = np.asarray(self._source.encode(self._shrink(images)))
        return {"source_ids": source_ids, "target_ids": inputs["token_ids"]}, targets

    def _shrink(self, images):
        return shrink(images, self.options.factor)

    def _compile(self):
        super()._compile()
        shape = small_shape(self.kind, self.options.factor)
        self._source = models.ImageTokens(shape, self.kind.num_values)


class ClassifierRun(ImagesRun):
    """Run of a classifier, which reads images as numbers from 0 to 1."""

    metric, curve = "accuracy", "val_accuracy"
    needs_whole_batches = True

    def _encode(self, images, labels):
        return {"images": images.astype("float32") / (self.kind.num_values - 1)}, labels

    def _compile(self):
        self.model.compile(
            adam(self.options),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            jit_compile=self.jit_compile,
        )
