"""Random Chronos-Bolt models of chronos-forecasting, and their forecasts, for `series_forecasts`:

    python -m recipes.benchmarks.contenders.series_forecasts_torch

Each line of the input is a request in JSON, each line of the output the answer: "make" writes a
random model to a folder, "forecast" writes its quantiles of series to a file, and "time" gives the
seconds of the processor for them. It needs torch and chronos-forecasting.
"""

import json
import sys
import time

import numpy as np
import torch
from chronos import BaseChronosPipeline
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from transformers import T5Config


def make(folder, sizes, settings):
    """Write a random model of the sizes of T5 and the settings of Chronos."""
    torch.manual_seed(1)
    config = T5Config(
        **sizes,
        dropout_rate=0.1,
        feed_forward_proj="relu",
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        vocab_size=2,
    )
    config.chronos_config = settings
    config.architectures = ["ChronosBoltModelForForecasting"]
    config.chronos_pipeline_class = "ChronosBoltPipeline"
    model = ChronosBoltModelForForecasting(config)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def read(file):
    """Return the series of a file of NumPy, in their order."""
    with np.load(file) as arrays:
        return [torch.tensor(arrays[name]) for name in sorted(arrays.files, key=int)]


def forecast(pipeline, series, horizon, file):
    """Write the quantiles (horizon, Q) of each series."""
    quantiles = [pipeline.predict_quantiles(row, horizon)[0][0] for row in read(series)]
    np.savez(file, **{str(i): x.numpy() for i, x in enumerate(quantiles)})


def seconds(pipeline, series, batch_size):
    """Return the processor's seconds for the forecasts of series of one length, in batches."""
    rows = torch.stack(read(series))
    start = time.process_time()
    for batch in rows.split(batch_size):
        pipeline.predict_quantiles(batch)
    return time.process_time() - start


def main():
    pipelines, answers, sys.stdout = {}, sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        action, folder = request.pop("action"), request.pop("folder")
        if action == "make":
            answer = make(folder, **request)
        else:
            if folder not in pipelines:
                options = {"device_map": "cpu", "dtype": torch.float32}
                pipelines[folder] = BaseChronosPipeline.from_pretrained(folder, **options)
            run = forecast if action == "forecast" else seconds
            answer = run(pipelines[folder], **request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
