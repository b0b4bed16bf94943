"""`explain` with a mesh: what each device holds and gets from others in a training step."""

import re
from pathlib import Path

import keras
import pytest
from other_backend import lines_on_eight_devices, needs_jax

import keras_attn
from keras_attn import layers
from keras_attn.commands.explain import main
from keras_attn.compat.unallocated import without_values
from keras_attn.costs.devices import axes_of_weights, rules_of_weights
from keras_attn.costs.explanation import in_bytes
from keras_attn.mesh import parse_mesh

HERE = Path(__file__).resolve().parent
V, LENGTH, ROWS = 512, 32, 16


def gpt(**changes):
    sizes = {"num_layers": 2, "num_heads": 8, "hidden_dim": 64, "intermediate_dim": 256}
    return keras_attn.models.gpt(V, **{**sizes, **changes}, max_length=LENGTH)


@pytest.fixture(scope="module")
def model():
    return gpt()


def devices_of(one, shards_parameters=False, **mesh):
    how = {"mesh": mesh, "shards_parameters": shards_parameters}
    return keras_attn.explain(one, LENGTH, ROWS, **how).devices


@pytest.mark.slow
def test_parameters_are_divided_as_rows_are(model):
    whole, sharded = devices_of(model), devices_of(model, True, data=8)
    assert sharded.weights < 0.15 * whole.weights
    assert sharded.activations == whole.activations / 8


@pytest.mark.slow
def test_one_device_has_all_and_gets_nothing(model):
    whole = keras_attn.explain(model, LENGTH, ROWS)
    for shards_parameters in (False, True):
        device = devices_of(model, shards_parameters)
        assert device.moved == 0 and device.weights == whole.memory.weights
        assert device.held == whole.memory.training
    assert whole.devices is None


@pytest.mark.slow
def test_a_device_holds_a_part_of_the_rows_or_of_the_weights(model):
    whole = devices_of(model)
    by_rows = devices_of(model, data=8)
    assert by_rows.weights == whole.weights and by_rows.optimizer == 2 * by_rows.gradients
    assert by_rows.activations == whole.activations / 8
    by_weights = devices_of(model, model=8)
    # Positions and norms are whole.
    assert whole.weights / 8 < by_weights.weights < 0.15 * whole.weights
    assert whole.activations / 8 < by_weights.activations < whole.activations


@pytest.mark.slow
def test_weights_that_a_mesh_cannot_divide_are_whole():
    """Six heads on four devices: attention is computed whole, and its outputs are not summed."""
    six = gpt(num_heads=6, hidden_dim=66)
    axes = axes_of_weights(six, rules_of_weights(six), {"data": 1, "model": 4}, False)
    named = {w.path: axes[id(w)] for w in six.weights}
    assert {"model"} == set(named[next(p for p in named if p.endswith("intermediate/kernel"))]) - {
        None
    }
    assert not any("model" in x for path, x in named.items() if "attention" in path)
    with_sums = devices_of(gpt(num_heads=8), model=4).summed_activations
    rows = ROWS * LENGTH * 4
    # Of each of two layers two sums less, and the rows are wider.
    assert devices_of(six, model=4).summed_activations == (with_sums / 64 / rows - 4) * 66 * rows


@pytest.mark.slow
def test_the_batch_of_a_device_is_rounded_up(model):
    three = keras_attn.explain(model, LENGTH, 17, mesh={"data": 8}).devices
    assert three.activations == keras_attn.explain(model, LENGTH, 3).memory.training - sum(
        (three.weights, three.gradients, three.optimizer)
    )


@pytest.mark.parametrize(
    "mesh, message",
    [
        ({"data": 0}, "`data`"),
        ({"rows": 2}, 'dict of "data" and "model"'),
        (4, 'dict of "data" and "model"'),
    ],
)
def test_other_meshes_are_refused(model, mesh, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.explain(model, LENGTH, ROWS, mesh=mesh)
    with pytest.raises(ValueError, match="`shards_parameters` must be False without a mesh"):
        keras_attn.explain(model, LENGTH, ROWS, shards_parameters=True)


@pytest.mark.slow
def test_the_command_prints_what_a_device_holds(capsys):
    arguments = ["transformer_tiny", "--length", "32", "--batch-size", "64"]
    assert main([*arguments, "--mesh", "data=4,model=2", "--shard-parameters"]) == 0
    printed = capsys.readouterr().out
    how = {"mesh": {"data": 4, "model": 2}, "shards_parameters": True}
    devices = keras_attn.explain("transformer_tiny", 32, 64, **how).devices
    assert (
        f"each of 4 x 2 devices, whose parameters are sharded: {in_bytes(devices.held)}" in printed
    )
    assert f"in a step it gets {in_bytes(devices.moved)} from others" in printed
    assert main([*arguments, "--mesh", "data=4,heads=2"]) == 2
    assert "A mesh must be as data=2,model=4" in capsys.readouterr().err


@pytest.mark.slow
def test_rows_and_weights_that_a_mesh_does_not_divide_are_reported():
    six = gpt(num_heads=6, hidden_dim=66)
    notes = keras_attn.explain(six, LENGTH, 7, mesh={"data": 2, "model": 4}).notes
    assert "7 rows do not divide by data=2: padding fills them." in notes
    # In each of two layers the kernels and biases of six heads, and the kernel of the outputs.
    unfit = "Weights whose sizes do not divide by model=4: 14, "
    assert [note for note in notes if note.startswith(unfit)]
    assert not keras_attn.explain(gpt(), LENGTH, 8, mesh={"data": 2, "model": 4}).notes


@pytest.mark.slow
def test_a_head_with_a_bias_uses_its_table_once():
    tied = gpt()
    with_bias = keras_attn.models.CausalLanguageModel(
        tied.embedding, tied.depth, position=tied.position, head=layers.TokenHead(tied.embedding)
    )
    how = {"data": 2, "model": 4}
    biased, plain = (devices_of(x, **how) for x in (with_bias, tied))
    assert biased.summed_activations == plain.summed_activations
    bias = V * 4
    assert plain.summed_gradients < biased.summed_gradients <= plain.summed_gradients + bias


def test_a_device_that_is_too_small_is_reported(model):
    notes = keras_attn.explain(model, LENGTH, ROWS, mesh={"model": 8}, memory=1e6).notes
    assert [note for note in notes if note.startswith("Training does not fit")]


@pytest.mark.slow
@needs_jax
def test_bytes_are_those_of_the_compiled_program():
    results = lines_on_eight_devices(HERE / "moved_on_devices.py")
    assert len(results) == 5
    for one in results:
        place = one["model"], one["mesh"]
        assert one["weights"] == one["calculated"]["weights"], place
        # The rest are sums for the loss, and ids.
        moved = sum(one["collectives"].values())
        assert 0.99 * moved <= one["calculated"]["moved"] <= moved, (place, one)


# | `llama_7b` | data=8,model=8 | yes | 1.69 GB | 127 GB | 50.9 GB |
ROW = re.compile(r"^\| `(\w+)` \| ([\w=,]+) \| (yes|no) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)


@pytest.mark.slow
def test_rows_of_the_table_of_the_page_are_what_explain_calculates():
    page = Path(keras_attn.__file__).parent / "distribution" / "README.md"
    rows = ROW.findall(page.read_text(encoding="utf-8"))
    assert len(rows) == 20
    rows = [rows[3], rows[8], rows[16]]  # each takes seconds
    keras.config.set_dtype_policy("mixed_bfloat16")
    with without_values():
        built = {name: keras_attn.models.create(name) for name in {row[0] for row in rows}}
    for name, text, sharded, *cells in rows:
        mesh = parse_mesh(text)
        how = {"mesh": mesh, "shards_parameters": sharded == "yes"}
        device = keras_attn.explain(built[name], 4096, mesh["data"] * mesh["model"], **how).devices
        state = device.weights + device.gradients + device.optimizer
        sizes = [in_bytes(n) for n in (state, device.activations, device.moved)]
        assert cells == sizes, (name, text)
