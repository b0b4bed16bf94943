"""
Title: A translator, served
Author: keras_attn developers
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Train a Transformer on dates, export it, ask a server, and look at its attention.
"""

import argparse
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np

from keras_attn import export, losses, models, optimizers, text, viz

try:
    from keras_attn.recipes.translate.dates import date_pairs
    from keras_attn.serving import client

    SERVER = "keras_attn.serving.server"
except ImportError:  # a checkout keeps these folders beside keras_attn
    from recipes.translate.dates import date_pairs
    from serving import client

    SERVER = "serving.server"

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for export and picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)

"""
## The task

Dates as German, English and French write them, such as "jeudi 5 janvier 1950", are to be written as
1950-01-05. The model learns the months of each language, the order of the parts, and to copy
digits. An answer is right or wrong, and no text of the test is in the training data.
"""

pairs = date_pairs(10_000, 1, 500, locales=["de", "en", "fr"])
tokenizer = text.Characters.train(line for pair in pairs["train"] for line in pair)
sources, targets = (tokenizer.encode_as_lists(lines) for lines in zip(*pairs["train"]))
batches = text.TokenBatches(sources, targets, tokens_per_batch=2048)

"""
## The model

An encoder reads the date, and a decoder writes the answer, one character after another. With
`residual="pre_norm"` two layers on each side learn within minutes. `Noam` is the learning rate of
the paper: it rises, then falls with the square root of the number of steps.
"""

model = models.transformer(
    tokenizer.vocabulary_size,
    num_layers=2,
    num_heads=4,
    hidden_dim=64,
    intermediate_dim=128,
    residual="pre_norm",
)
model.compile(
    optimizers.Adam(optimizers.Noam.from_peak(5e-3, warmup_steps=200), beta_2=0.98),
    losses.LabelSmoothedCrossentropy(0.1),
    jit_compile=False,
)
model.fit(batches.as_dataset(), epochs=8, verbose=2)

"""
## Export and serve

The export takes text and gives text. Tokenizer and decoding are in its graph, so the server needs
no code of the model. The server here speaks TensorFlow Serving's API; the real one,
`tensorflow_model_server`, takes the same folder and the same requests. The client asks again until
the server has started.
"""

export.saved_model(model, out / "translator", tokenizer=tokenizer, max_length=12)
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
command = [sys.executable, "-m", SERVER, "--model_name=dates", f"--rest_api_port={port}"]
server = subprocess.Popen([*command, "--port=0", f"--model_base_path={out / 'translator'}"])
try:
    questions, expected = zip(*pairs["test"])
    dates = client.RestClient(f"http://127.0.0.1:{port}/v1/models/dates", retries=100)
    answers = [answer.text for answer in dates.translate(questions)]
    attention = dates.predict({"text": questions[3:4]}, "attention")
finally:
    server.terminate()
    server.wait()

right = np.mean([answer == wanted for answer, wanted in zip(answers, expected)])
print(f"The server answers {right:.1%} of {len(questions)} unseen dates exactly")
for question, answer in list(zip(questions, answers))[:5]:
    print(f"{answer}  {question}")

"""
## Attention of an answer

The signature `attention` adds the weights of each head: of each written character, a row, over the
characters of the question, the columns. The digits of year and day are copied from their places.
Those of the month are read from letters that tell it from other months, and heads read different
ones.
"""

rows, columns = attention["lengths"][0], attention["source_lengths"][0]
weights = np.array(attention["cross_attention"][0])[:, :, :rows, :columns]
figure = viz.plot_attention(
    {f"layer {number}": heads for number, heads in enumerate(weights, start=1)},
    attention["tokens"][0][:rows],
    attention["source_tokens"][0][:columns],
)
figure.savefig(out / "served_translator.png", dpi=80)
