"""
Title: Your first Transformer
Author: keras_attn developers
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Classify sentences whose meaning is in the order of the words.
"""

import argparse
import pathlib
import random

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import keras_attn

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for the picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)

"""
## Sentences that counting words cannot classify

"The plot was not bad but the ending was dull": is the film good? A reader must see which adjective
"not" belongs to, and that the clause after "but" decides. We write such sentences by a rule, so
nothing is downloaded and each label is right.
"""

GOOD = "good wonderful gripping clever moving funny charming brilliant".split()
BAD = "bad dull boring weak clumsy silly tedious awful".split()
PARTS = "plot cast music acting ending dialogue".split()


def clause():
    is_good, is_negated = random.choice([True, False]), random.choice([True, False])
    verb = random.choice(["was not", "was never", "was hardly"] if is_negated else ["was", "is"])
    text = f"the {random.choice(PARTS)} {verb} {random.choice(GOOD if is_good else BAD)}"
    return text, is_good != is_negated


def sentence():
    (x, x_is_good), (y, y_is_good) = clause(), clause()
    sides = [(x, x_is_good), (f"{x} although {y}", x_is_good)]
    return random.choice([*sides, (f"{x} but {y}", y_is_good), (f"although {x} {y}", y_is_good)])


train = dict(sentence() for _ in range(10_000))
test = {text: label for text, label in (sentence() for _ in range(2_000)) if text not in train}
train_labels, test_labels = (np.array(list(x.values()), "float32") for x in (train, test))

"""
## The model

`TextVectorization` pads short sentences with the id 0, which `pad_id=0` marks as padding.
Keras passes the mask on: blocks do not attend to padding, and the pooling averages over words only.
Attention does not know the order of its inputs, so `Sinusoidal` adds its position to each word.
"""

to_ids = keras.layers.TextVectorization(output_sequence_length=16)
to_ids.adapt(list(train))

inputs = keras.Input((None,), dtype="int32")
x = keras_attn.layers.TokenEmbedding(to_ids.vocabulary_size(), 64, pad_id=0)(inputs)
x = keras_attn.positions.Sinusoidal()(x)
for _ in range(2):
    attention = keras_attn.layers.MultiHeadAttention(num_heads=4, key_dim=16)
    feed_forward = keras_attn.layers.FeedForward(128)
    x = keras_attn.layers.TransformerBlock(attention, feed_forward, dropout=0.1)(x)
x = keras.layers.GlobalAveragePooling1D()(x)
model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))

model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=["accuracy"])
model.fit(to_ids(list(train)), train_labels, batch_size=64, epochs=6, verbose=2)

"""
## The result, beside a baseline

Logistic regression on word counts finds all that the words reveal without their order. More padding
must change no answer: that is the mask at work.
"""

counting = make_pipeline(CountVectorizer(), LogisticRegression()).fit(list(train), train_labels)
baseline = counting.score(list(test), test_labels)
ids = to_ids(list(test))
_, accuracy = model.evaluate(ids, test_labels, verbose=0)
print(f"Accuracy on unseen sentences: {accuracy:.3f}; of counting words: {baseline:.3f}")
change = np.abs(model(ids) - model(keras.ops.pad(ids, [[0, 0], [0, 34]]))).max()
print(f"With 50 ids a sentence instead of 16, an answer changes by at most {change:.0e}")

"""
## Answers

Each pair has the same words in another order. Ask your own, with the words above.
"""

questions = [
    "the plot was good but the music was not funny",
    "the plot was not good but the music was funny",
    "although the cast was awful the ending was brilliant",
    "the cast was awful although the ending was brilliant",
]
answers = model.predict(to_ids(questions), verbose=0)[:, 0]
for text, answer in zip(questions, answers):
    print(f"{'good' if answer > 0.5 else 'bad':4} {answer:.3f}  {text}")

rows = -np.arange(len(questions))
plt.figure(figsize=(8, 2.6), layout="constrained")
plt.barh(rows + 0.2, answers, 0.4, label="Transformer")
plt.barh(rows - 0.2, counting.predict_proba(questions)[:, 1], 0.4, label="counting words")
plt.yticks(rows, questions)
plt.xlabel("probability that the film is good")
plt.legend()
plt.savefig(out / "first_transformer.png", dpi=80)
