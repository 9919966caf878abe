"""Our losses in a plain PyTorch loop: the same numbers as the engine's, and clear words where a method needs more."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import wsl_toolkit as wsl
from wsl_toolkit.api.components import make_component
from wsl_toolkit.data.problem import CleanLabels, Problem
from wsl_toolkit.errors import ConfigError, LabelError, WslError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream, stream_seed
from wsl_toolkit.testing.small_training import MeanLoss
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import batch_sizes
from wsl_toolkit.training.train import TrainingJob, train

N, D, K, EPOCHS, BATCH, RATE = 120, 6, 5, 2, 25, 0.02
ESTIMATORS = load_plugins().registry.names("estimator")


def examples(full: bool = False) -> tuple[Tensor, Tensor, wsl.CandidateSets]:
    rng = torch.Generator().manual_seed(3)
    y = torch.randint(K, (N,), generator=rng)
    x = 2 * torch.randn(K, D, generator=rng)[y] + torch.randn(N, D, generator=rng)
    mask = torch.rand(N, K, generator=rng) < 0.3
    mask[torch.arange(N), (y + 1) % K] = False
    mask[torch.arange(N), y] = True
    if full:
        mask[::10] = True
    return x, y, wsl.CandidateSets.from_mask(mask)


def made_problem(x: Tensor, y: Tensor, sets: wsl.CandidateSets) -> Problem:
    nothing = CleanLabels(train=y, validation=None, test=None)
    return Problem(
        train_x=x,
        train_candidates=sets,
        validation_x=x[:0],
        validation_candidates=None,
        test_x=x[:0],
        clean=nothing,
        transform=nn.Identity(),
        num_classes=K,
        input_shape=(D,),
    )


def engine_risks(name: str, x: Tensor, y: Tensor, sets: wsl.CandidateSets) -> list[float]:
    """Return each epoch's mean loss as `training.train`, which is behind `wsl run`, finds it."""
    job = TrainingJob(
        problem=made_problem(x, y, sets),
        estimator=make_component("estimator", name),
        backbone=make_component("backbone", "mlp"),
        training=Training(epochs=EPOCHS, batch_size=BATCH, lr=RATE),
        seed=0,
    )
    return [record.metrics["train/risk"] for record in train([job])[0].records]


class EngineOrder:
    """The batches of the engine: its shuffling stream, its sizes."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.rng = stream(0, "shuffling")

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.examples, generator=self.rng)
        return iter([part.tolist() for part in order.split(batch_sizes(self.examples, BATCH))])


def initial_network(number: int = 1) -> nn.Module:
    """The first network of the engine, or another one."""
    torch.manual_seed(stream_seed(0, "initialisation" if number == 1 else f"initialisation {number}"))
    return make_component("backbone", "mlp").build((D,), K)


def plain_loop(name: str, x: Tensor, sets: wsl.CandidateSets) -> list[float]:
    """Return each epoch's mean loss of a loop that anybody could have written."""
    risk = wsl.risk(name, sets)
    numbers = itertools.count(1)
    model = risk.extend(lambda: initial_network(next(numbers)))
    data = wsl.PartialLabelDataset(x, sets)
    loader = DataLoader(data, batch_sampler=EngineOrder(len(data)), generator=torch.Generator())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    torch.manual_seed(stream_seed(0, "training"))
    found = []
    for _ in range(EPOCHS):
        total = 0.0
        for inputs, _, index in loader:
            output = model(inputs)
            loss = risk(output, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            risk.after_step(model, inputs, output, index)
            total += float(loss.detach()) * len(index)
        risk.end_epoch(model, x)
        found.append(total / len(data))
    return found


@pytest.mark.parametrize("name", ["ppl", "lw", "cc", "proden"])
def test_twenty_lines_of_plain_pytorch_have_the_engine_s_losses(name: str) -> None:
    x, y, sets = examples()
    network = initial_network()
    risk = wsl.risk(name, sets)
    data = wsl.PartialLabelDataset(x, sets)
    loader = DataLoader(data, batch_sampler=EngineOrder(len(data)))
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    history = []
    for _ in range(EPOCHS):
        losses = []
        for inputs, _, index in loader:
            logits = network(inputs)
            loss = risk(logits, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            risk.update(network(inputs) if risk.update_when == "after" else logits, index)
            losses += [loss.item()] * len(index)
        history.append(sum(losses) / len(losses))
    assert history == pytest.approx(engine_risks(name, x, y, sets), rel=1e-5)
    assert float((network(x).argmax(1) == y).float().mean()) > 0.5


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_has_the_engine_s_losses_in_a_loop_of_one_s_own(name: str) -> None:
    x, y, sets = examples()
    if make_component("estimator", name).reads_true_labels():
        sets_of_risk = wsl.CandidateSets.from_labels(y, K)
    else:
        sets_of_risk = sets
    assert plain_loop(name, x, sets_of_risk) == pytest.approx(engine_risks(name, x, y, sets), rel=1e-4, abs=1e-6)


def test_examples_whose_set_is_full_are_left_out_as_the_engine_leaves_them_out() -> None:
    x, _, sets = examples(full=True)
    data = wsl.PartialLabelDataset(x, sets)
    assert len(data) == N - N // 10
    kept = [data[place] for place in range(len(data))]
    assert all(not bool(mask.all()) for _, mask, _ in kept)
    assert all(torch.equal(item, x[index]) for item, _, index in kept)
    risk = wsl.risk("ppl", sets)
    with pytest.raises(LabelError, match="example 10 has all classes"):
        risk(torch.randn(3, K), torch.tensor([1, 10, 2]))


def test_the_state_is_saved_and_restored() -> None:
    _, _, sets = examples()
    logits, index = torch.randn(7, K), torch.arange(7)
    risk = wsl.risk("ppl", sets)
    before = copy.deepcopy(risk.state_dict())
    risk.update(logits, index)
    risk.end_epoch()
    other = wsl.risk("ppl", sets)
    assert float(other(logits, index)) != pytest.approx(float(risk(logits, index)))
    other.load_state_dict(risk.state_dict())
    assert torch.equal(other(logits, index), risk(logits, index))
    assert int(other.epochs_done) == 1
    other.load_state_dict(before)
    assert torch.equal(other(logits, index), wsl.risk("ppl", sets)(logits, index))


def test_the_sets_go_where_the_module_goes() -> None:
    """There is no second device here: a module that is moved must move the sets, which are no buffers, with it."""
    _, _, sets = examples()
    risk = wsl.risk("cc", sets)
    moved: list[Any] = []

    class Watched(wsl.CandidateSets):
        def to(self, device: Any) -> wsl.CandidateSets:
            moved.append(device)
            return self

    risk.candidates = Watched(sets._store, K)
    risk._apply(lambda tensor: tensor.to("meta"))
    assert [str(device) for device in moved] == ["meta"]


@pytest.mark.parametrize("kind", ["before", "after", "never"])
def test_each_kind_of_method_says_which_logits_it_wants(kind: str) -> None:
    name = {"before": "proden", "after": "ppl", "never": "cc"}[kind]
    risk = wsl.risk(name, examples()[2])
    assert risk.update_when == kind
    assert {"before": "before the step", "after": "second pass", "never": "does nothing"}[kind] in risk.describe()
    assert name in repr(risk).lower() or "sets" in repr(risk).lower()


def test_a_method_that_needs_more_than_logits_says_what_and_how() -> None:
    risk = wsl.risk("pico", examples()[2])
    assert {"features", "momentum", "weak_view"} <= set(risk.needs)
    assert "risk.extend(network)" in risk.describe()
    with pytest.raises(ConfigError, match=r"pico needs .*features.* beside logits: train risk.extend\(network\)"):
        risk(torch.randn(4, K), torch.arange(4))
    valen = wsl.risk("valen", examples()[2])
    with pytest.raises(ConfigError, match="valen needs seed beside logits"):
        valen(torch.randn(4, K), torch.arange(4))
    assert "end_epoch" in valen.describe()


def test_sets_are_taken_in_every_usual_form() -> None:
    _, _, sets = examples()
    logits, index = torch.randn(4, K), torch.arange(4)
    wanted = wsl.risk("cc", sets)(logits, index)
    import pandas as pd

    for form in (sets.mask(), sets.mask().numpy(), sets.mask().int().tolist(), pd.DataFrame(sets.mask().numpy())):
        given = wsl.CandidateSets.from_mask(form) if isinstance(form, list) else form
        assert torch.equal(wsl.risk("cc", given)(logits, index), wanted)
    assert torch.equal(wsl.risk("cc", sets.to_sets())(logits, index), wanted)


@pytest.mark.parametrize(
    ("logits", "index", "says"),
    [
        (torch.randn(3, K + 1), torch.arange(3), rf"logits must be \[B, {K}\]"),
        (torch.randn(3, K), torch.arange(4), "index must be 3 whole numbers"),
        (torch.randn(3, K), torch.rand(3), "index must be 3 whole numbers"),
        (torch.randn(3, K), torch.tensor([0, 1, N]), f"index must be from 0 to {N - 1}"),
        (torch.randn(3, K), torch.tensor([0, -1, 2]), f"index must be from 0 to {N - 1}"),
    ],
)
def test_what_does_not_fit_is_refused(logits: Tensor, index: Tensor, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        wsl.risk("ppl", examples()[2])(logits, index)


def test_a_wrong_name_or_parameter_has_the_command_line_s_message() -> None:
    _, y, sets = examples()
    with pytest.raises(WslError, match=r"no estimator is named 'pll'\. Did you mean 'ppl'"):
        wsl.risk("pll", sets)
    with pytest.raises(ConfigError, match="estimator ppl: unknown parameter 'base_los'"):
        wsl.risk("ppl", sets, base_los="gce")
    with pytest.raises(ConfigError, match="learns from true labels"):
        wsl.risk("supervised", sets)
    with pytest.raises(LabelError, match="120 candidate sets for 119 inputs"):
        wsl.PartialLabelDataset(torch.zeros(N - 1, D), sets)
    assert float(wsl.risk("supervised", wsl.CandidateSets.from_labels(y, K))(torch.randn(3, K), torch.arange(3))) > 0


def test_a_method_that_looks_at_all_logits_after_an_epoch_is_given_them() -> None:
    @attrs.frozen(kw_only=True)
    class LooksBack(MeanLoss):
        """Keeps the most likely class of every example that says something."""

        name: ClassVar[str] = "looks-back"
        needs: ClassVar[frozenset[str]] = frozenset({"all_logits"})
        stackable: ClassVar[bool] = False

        def init_state(self, candidates: Tensor) -> dict[str, Tensor]:
            return {"likely": torch.full((len(candidates),), -1)}

        def after_epoch(self, candidates: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"likely": state["all_logits"].argmax(1)}

    sets = wsl.CandidateSets.from_sets([[0], [0, 1, 2], [1, 2]], 3)
    risk = wsl.risk(LooksBack(), sets)
    x = torch.tensor([[3.0, 0, 0], [0, 0, 3], [0, 3, 0]])
    assert torch.isfinite(risk(x[[0, 2]], torch.tensor([0, 2])))
    risk.end_epoch(nn.Identity(), x)
    assert risk.get_buffer("row_likely").tolist() == [0, -1, 1], "a full set says nothing, and is left alone"


def test_a_method_with_two_networks_wants_a_function_that_makes_them() -> None:
    risk = wsl.risk("crosel", examples()[2])
    with pytest.raises(ConfigError, match="crosel trains two networks: give"):
        risk.extend(initial_network())


def test_a_method_that_looks_at_all_logits_says_how_it_gets_them() -> None:
    x, _, sets = examples()
    risk = wsl.risk("solar", sets)
    assert "risk.end_epoch(model, x)" in risk.describe()
    with pytest.raises(ConfigError, match=r"call risk.end_epoch\(model, x\)"):
        risk.end_epoch()
    with pytest.raises(ConfigError, match=f"all {len(sets)} inputs"):
        risk.end_epoch(initial_network(), x[1:])
