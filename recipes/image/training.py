"""One run of the recipe: images, model, training, evaluation, samples, export and card."""

import time

import numpy as np

from keras_attn import generation, losses, metrics, models

from .. import run
from ..epochs import EpochDataset
from ..optimizer import COMPILED, adam
from .architectures import build
from .batches import Batches, InOrder
from .data import KINDS, Images, read_images
from .drawing import write_grid
from .settings import settings


class Run(run.Run):
    """A run in the directory `options.out`, which a later run with the same options continues."""

    curve = "val_bits_per_dim"

    def __init__(self, options):
        super().__init__(options, settings(options))
        self.kind = KINDS[options.dataset]
        self.splits = read_images(options.dataset, options.data_dir, options.seed)
        with self.scope():
            self.model = build(options, self.kind)
            self.tokens = models.ImageTokens.of(self.model)
            self._likelihood = self._mixture()
            self._compile()
        if self._likelihood:
            self.check_shared("batch_size")

    def train(self):
        """Trains, or goes on training."""
        options = self.options
        steps = options.steps // options.epochs
        images = self.splits["train"]
        train = Batches(images, options.batch_size, steps, options.seed, self._labelled)
        number = min(options.valid_images, len(self.splits["valid"]))
        if self._likelihood:  # a last batch is shared evenly too
            number -= number % self.devices.num_replicas_in_sync
        self.fit(EpochDataset(train), self._held_out("valid", number)[0])

    def evaluate(self):
        """Bits per dimension of the test split."""
        data, number = self._held_out("test", self.options.test_images)
        started = time.monotonic()
        found = self.model.evaluate(data.data(), verbose=0, return_dict=True)
        return {
            "test": {
                "metric": "bits_per_dim",
                "value": found["bits_per_dim"],
                "signature": f"{number} images",
                "images": number,
                "seconds": round(time.monotonic() - started, 1),
            }
        }

    def sample(self):
        """Draws images, those that the export draws by the same seed, and writes `samples.png`."""
        from keras_attn import export

        generator = export.ImageGenerator(self.model, self._strategy())
        images = generator.generate(self.options.samples, self.options.seed)["images"].numpy()
        write_grid(images, self.kind.num_values, self.path("samples.png"))
        return images

    def export(self):
        """Writes the next version under `export/`."""
        from keras_attn import export

        self.exported = export.saved_model(
            self.model,
            self.path("export"),
            strategy=self._strategy(),
            version=self.options.export_version,
        )

    def facts(self):
        """Also draws samples."""
        self.sample()
        return {
            "task": self.options.dataset,
            "vocabulary_size": self.tokens.vocabulary_size,
            "images": {name: len(images) for name, images in self.splits.items()},
        }

    def report(self, card):
        yield f"Samples: {self.path('samples.png')}"
        yield from super().report(card)

    def _labelled(self, images):
        """What the model reads of a batch, and what it is to predict."""
        encode = self.tokens.values if self._likelihood else self.tokens.encode
        inputs, labels = self.tokens.inputs(images), encode(images)
        return {"token_ids": np.asarray(inputs)}, np.asarray(labels)

    def _held_out(self, split, most):
        """`EpochDataset` of at most so many images, and how many they are."""
        array, order = self.splits[split]
        images = Images(array, order[:most])
        batches = InOrder(images, self.options.batch_size, self._labelled)
        return EpochDataset(batches, free_axes=(0,)), len(images)

    def _mixture(self):
        """The likelihood of whole pixels; None for the softmax of a value."""
        if not self.tokens.whole_pixels:
            return None
        return losses.MixtureOfLogistics(
            self.options.num_mixtures, self.tokens.image_shape[2], self.tokens.num_values
        )

    def _strategy(self):
        """How to draw; None for what suits the likelihood."""
        temperature = self.options.temperature
        return None if temperature == 1 else generation.Sample(temperature)

    def _compile(self):
        self.model.compile(
            adam(self.options),
            loss=self._likelihood or losses.LabelSmoothedCrossentropy(0.0),
            weighted_metrics=[metrics.BitsPerDim(likelihood=self._likelihood)],
            jit_compile=COMPILED,
        )
