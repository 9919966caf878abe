"""Matrices, partitions and reference models of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from generator_cases import create

from wsl_builtins.generators.matrices import COMPLEMENT, JOINING
from wsl_builtins.generators.reference import fingerprints, train_linear
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.theory.enumeration import all_sets, law
from wsl_toolkit.theory.instances import made_data
from wsl_toolkit.theory.proofs import prove


@pytest.mark.parametrize("suffix", ["csv", "npy", "txt"])
def test_matrices_are_read_from_text_and_npy(tmp_path, suffix):
    matrix = np.array([[0, 0.25, 0.75], [0.5, 0, 0.5], [1, 0, 0]])
    path = tmp_path / f"q.{suffix}"
    if suffix == "npy":
        np.save(path, matrix)
    else:
        np.savetxt(path, matrix, delimiter="," if suffix == "csv" else " ")
    generator = create("cl-biased", matrix=str(path))
    table = law(generator, torch.zeros(1, 1), 3)[0]
    without = {out: int((~all_sets(3)[:, out] & (all_sets(3).sum(1) == 2)).nonzero()) for out in range(3)}
    for y in range(3):
        for out in range(3):
            assert float(table[without[out], y]) == pytest.approx(matrix[y, out])
    assert prove(generator, 3).region == "general"


def test_presets_are_what_their_names_say():
    pair = JOINING["pair"](4, 0.3)
    assert pair.tolist() == [[0, 0.3, 0, 0], [0, 0, 0.3, 0], [0, 0, 0, 0.3], [0.3, 0, 0, 0]]
    assert JOINING["neighbours"](4, 0.3)[0].tolist() == [0, 0.3, 0, 0.3]
    assert JOINING["decay"](4, 0.5)[1].tolist() == [0.125, 0, 0.5, 0.25]
    assert JOINING["uniform"](3, 0.2)[2].tolist() == [0.2, 0.2, 0]
    for k in (3, 10, 1000):
        for name, preset in COMPLEMENT.items():
            q = preset(k, 0.5)
            assert torch.allclose(q.sum(1), torch.ones(k, dtype=torch.float64)), name
            assert (q.diagonal() == 0).all(), name


def test_partitions_are_read_from_a_file(tmp_path):
    path = tmp_path / "superclasses.txt"
    path.write_text("# animals and vehicles\n0-1 | 2,3\n\n0 2|1 3   # colours\n")
    generator = create("partition", partitions=f"@{path}", weights=(3.0, 1.0))
    sets = all_sets(4)
    c = generator.constant(sets, sets, 4)
    by_set = {tuple(row.nonzero().flatten().tolist()): float(v) for row, v in zip(sets, c, strict=True) if v > 0}
    assert by_set == {(0, 1): 0.75, (2, 3): 0.75, (0, 2): 0.25, (1, 3): 0.25}


def test_queries_are_read_with_weights_and_count_from_both_sides():
    generator = create("query", queries="0 1; 2 3; 0", weights=(1.0, 1.0, 2.0))
    sets = all_sets(4)
    c = generator.constant(sets, sets, 4)
    by_set = {tuple(row.nonzero().flatten().tolist()): float(v) for row, v in zip(sets, c, strict=True) if v > 0}
    assert by_set == {(0, 1): 0.5, (2, 3): 0.5, (0,): 0.5, (1, 2, 3): 0.5}


def test_noisy_passes_options_with_semicolons_to_the_generator_it_wraps():
    noisy = create("noisy", wraps="partition", options="partitions=0 1|2 3; 0 2|1 3; weights=3,1", eta=0.0)
    direct = create("partition", partitions="0 1|2 3; 0 2|1 3", weights=(3.0, 1.0))
    assert torch.allclose(law(noisy, torch.zeros(1, 1), 4), law(direct, torch.zeros(1, 1), 4))


def test_the_reference_model_learns_and_leaves_global_randomness_alone():
    data = made_data(4)
    before = torch.get_rng_state()
    models = [train_linear(data.x, data.y, 4, 20, torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(models[0].weight, models[1].weight)
    assert torch.equal(torch.get_rng_state(), before)
    accuracy = float((models[0].logits(data.x).argmax(1) == data.y).double().mean())
    assert accuracy > 0.7


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_training_is_stable_whatever_the_scale_of_the_inputs(scale):
    data = made_data(4)
    x = torch.cat([data.x * scale + 7 * scale, torch.ones(len(data.x), 1)], dim=1)  # and a constant input
    model = train_linear(x, data.y, 4, 20, torch.Generator().manual_seed(0))
    assert torch.isfinite(model.logits(x)).all()
    assert float((model.logits(x).argmax(1) == data.y).double().mean()) > 0.7


def test_labels_join_where_the_reference_finds_them_plausible():
    data = made_data(5)
    ready = create("flip-instance", rate=0.4).prepare(data.x, data.y, 5, torch.Generator().manual_seed(0))
    p = torch.softmax(ready.model.logits(data.x), dim=1)
    joins = ready.joining(data.x, data.y, 5)
    wrong = torch.ones_like(p, dtype=torch.bool).scatter(1, data.y.unsqueeze(1), False)
    mean_wrong = (p * wrong).sum(1, keepdim=True) / 4
    expected = (p / mean_wrong * 0.4).clamp(max=1)
    assert torch.allclose(joins[wrong], expected[wrong])
    assert float(joins[wrong].max()) == 1  # clipping happens
    assert float(joins[wrong].mean()) < 0.4


@pytest.mark.parametrize("as_logits", [True, False])
def test_a_reference_from_a_file_is_bound_to_its_examples(tmp_path, as_logits):
    data = made_data(4)
    logits = torch.randn(len(data.x), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    path = tmp_path / "reference.npy"
    np.save(path, (logits if as_logits else torch.softmax(logits, 1)).numpy())
    generator = create("flip-instance", reference=str(path))
    ready = generator.prepare(data.x, data.y, 4, torch.Generator())
    shuffled = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(1))
    found = torch.softmax(ready.model.logits(data.x[shuffled]), 1)
    assert torch.allclose(found, torch.softmax(logits, 1)[shuffled])
    sets = generator.sample(data.x, data.y, 4, torch.Generator().manual_seed(0))
    assert len(sets) == len(data.x)
    assert prove(ready, 4, data.instances).region == "general"
    with pytest.raises(ConfigError, match="example 0 is not among those"):
        ready.joining(data.x[:1] + 1, data.y[:1], 4)


def test_a_reference_with_the_wrong_number_of_rows_is_refused(tmp_path):
    path = tmp_path / "reference.csv"
    path.write_text("0.5,0.3,0.2\n0.1,0.1,0.8\n")
    data = made_data(3)
    with pytest.raises(ConfigError, match="is 2×3, but 60 examples of 3 classes"):
        create("flip-instance", reference=str(path)).sample(data.x, data.y, 3, torch.Generator())


def test_a_reference_that_is_sure_and_right_still_gives_a_law(tmp_path):
    """All wrong labels at probability zero: they are alike, so each joins with the rate."""
    data = made_data(3)
    path = tmp_path / "sure.npy"
    np.save(path, torch.nn.functional.one_hot(data.y, 3).double().numpy())
    ready = create("flip-instance", reference=str(path), rate=0.4).prepare(data.x, data.y, 3, torch.Generator())
    joins = ready.joining(data.x, data.y, 3)
    wrong = torch.nn.functional.one_hot(data.y, 3) == 0
    assert torch.allclose(joins[wrong], torch.tensor(0.4, dtype=torch.float64))


def test_an_unprepared_instance_generator_says_what_to_do():
    with pytest.raises(ConfigError, match="call prepare"):
        create("flip-instance").draw(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), 3, torch.Generator())


def test_fingerprints_tell_examples_apart_and_know_them_again():
    x = torch.randn(5000, 7, generator=torch.Generator().manual_seed(0))
    keys = fingerprints(x)
    assert len(keys.unique()) == 5000
    assert torch.equal(keys[100:200], fingerprints(x[100:200].clone()))
    nudged = x.clone()
    nudged[0, 6] = torch.nextafter(nudged[0, 6], torch.tensor(9.0))
    assert fingerprints(nudged)[0] != keys[0]
