"""Run of a task, by its kind of model."""

from .parity_run import ParityRun
from .sequence_run import SequenceRun


def run(options, started):
    (ParityRun if options.task == "parity" else SequenceRun)(options).execute(started)
