"""One run of the recipe: series, model, training, evaluation beside baselines, export and card."""

from .classes import ClassRun
from .forecasts import ForecastRun
from .options import CLASSES


def run(options, started):
    kind = ClassRun if options.task == CLASSES else ForecastRun
    kind(options).execute(started)
