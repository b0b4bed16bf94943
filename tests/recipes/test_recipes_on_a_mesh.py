"""Recipes divide their model among the devices of a mesh, on JAX.

All runs are in one process, which imports and starts JAX once.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from other_backend import needs_jax, run_on
from recipe_processes import started
from shared_results import shared

pytestmark = [needs_jax, pytest.mark.slow]

SIZE = "--num-layers 1 --num-heads 2 --hidden-dim 8 --intermediate-dim 12".split()
STEPS = "--steps 4 --epochs 2 --batch-size 6".split()
ON_TEXT = "--text {data}/text.txt --tokenizer characters --context 12 --valid-tokens 90".split()
PAIRS = "--data-dir {data} --source en --target xx --num-layers 1 --tokenizer characters".split()
BATCHES = "--tokens-per-batch 192 --epochs 2 --warmup-steps 2 --dropout 0".split()
RUNS = {
    "translate": ("translate", *PAIRS, *BATCHES, "--packing", "24"),
    "compare": ("compare", *SIZE, *STEPS, *ON_TEXT, "--axis", "memory", "--values", "segment"),
}
MESH = "--strategy", "model_parallel", "--mesh", "data=2,model=2"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text("".join(f"{i} and {i * i % 17}\n" for i in range(150)))
    words = ["".join(chr(97 + i * k % 7) for k in range(3 + i % 5)) for i in range(53)]
    for split, lines in (("train", 41), ("val", 7), ("test_small", 5)):
        (folder / f"{split}.en").write_text("\n".join(words[:lines]))
        (folder / f"{split}.xx").write_text("\n".join(word[::-1] for word in words[:lines]))
    return folder


def losses(out):
    """Return the losses of a run, or the results of a comparison.

    Of batches with different numbers of rows it is the perplexity: Keras weighs the losses of
    batches by their rows, also by those that fill a batch.
    """
    if (out / "history.csv").exists():
        history = np.genfromtxt(out / "history.csv", delimiter=",", names=True)
        names = [name for name in history.dtype.names if name.endswith("perplexity")]
        return {name: history[name] for name in names or ("loss", "val_loss")}
    paths = sorted(out.rglob("*-0.json"))
    return {path.name: json.loads(path.read_text())["bits_per_character"] for path in paths}


PROGRAM = """
import json, sys, traceback
import keras
from keras_attn.distribution import ModelParallel
from recipes.common import cli

divided = []

def noted(self, variable, layout_of=ModelParallel.get_variable_layout):
    layout = layout_of(self, variable)
    divided.extend(filter(None, layout.axes))
    return layout

ModelParallel.get_variable_layout = noted
cli._exit_soon = lambda code: None  # of a process that others wait for
problems = {}
for out, recipe, options in json.loads(sys.argv[1]):
    divided.clear()
    try:
        code = cli.main(f"recipes.{recipe}", ["--out", out, *options])
    except (Exception, SystemExit):
        code = traceback.format_exc()
    if not code and ("--mesh" in options) != ("model" in divided):
        code = f"weights are divided by {divided}"
    if code:
        problems[out] = code
    keras.distribution.set_distribution(None)
    keras.backend.clear_session()
print(json.dumps(problems))
"""


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """Train each recipe on one device and on the mesh; return the folder and the problems."""

    def train():
        folder, programs = tmp_path_factory.mktemp("runs"), []
        for name, (recipe, *options) in RUNS.items():
            options = [option.format(data=data) for option in options]
            for where, more in (("alone", ()), ("mesh", MESH)):
                programs.append((f"{folder / name}/{where}", recipe, [*options, *more]))
        programs.append((f"{folder}/dry", "translate", [*programs[0][2], "--dry-run"]))
        flags = "--xla_force_host_platform_device_count=4"
        return str(folder), run_on("jax", PROGRAM, json.dumps(programs), XLA_FLAGS=flags)

    folder, problems = shared(tmp_path_factory, "recipes_on_a_mesh", train)
    return Path(folder), problems


@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_trains_on_a_mesh_as_on_one_device(name, runs):
    folder, problems = runs
    alone, mesh = (folder / name / where for where in ("alone", "mesh"))
    assert [problem for out, problem in problems.items() if f"/{name}/" in out] == []
    divided, expected = losses(mesh), losses(alone)
    assert expected and divided.keys() == expected.keys()
    for metric, values in expected.items():
        np.testing.assert_allclose(divided[metric], values, rtol=1e-5, atol=1e-4, err_msg=metric)


def test_a_dry_run_on_jax_writes_nothing(runs):
    folder, problems = runs
    assert f"{folder}/dry" not in problems and not (folder / "dry").exists()


def test_agents_refuse_a_mesh(tmp_path):
    process = started("control", "--out", tmp_path / "out", *MESH, backend="jax")
    said = process.communicate(timeout=100)[0]
    assert process.returncode == 2 and "--strategy must be none or mirrored" in said, said
