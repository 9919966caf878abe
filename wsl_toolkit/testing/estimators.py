"""The contract of an estimator: pure functions, right gradients, finite everywhere, and a promise that is proven."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.testing import batches
from wsl_toolkit.testing.batches import EXTREMES, Batch, make_batch
from wsl_toolkit.testing.common import (
    ComponentContract,
    global_randomness_untouched,
    not_applicable,
    not_finite,
    same_numbers,
    stream,
    work_of,
)
from wsl_toolkit.testing.distributions import NEXT_WIDER, random_distribution, random_posterior
from wsl_toolkit.theory.bias import moments_under
from wsl_toolkit.theory.minimiser import minimise, works_on_batches

INSTANCES = 60
"""Instances, each with a distribution of sets and class probabilities of its own, at which a promise is tried."""
FEW_INSTANCES = 12
"""The same for methods that work on whole batches, for which an instance is a population."""

LATE = 1e4
"""An epoch by which every warm-up and ramp is over."""


class EstimatorContract(ComponentContract):
    """Give `component`; `learning_rate` and `epochs` if they do not suit it on the small training problem."""

    num_classes: ClassVar[int] = 4
    """At which the promise is proven."""
    learning_rate: ClassVar[float] = 0.1
    epochs: ClassVar[int] = 12
    learned: ClassVar[float] = 0.75
    """The accuracy that the small training problem must reach; guessing gives a third."""

    def test_the_loss_is_one_number_an_example(self, component: Estimator) -> None:
        """In the precision of the logits."""
        for dtype in (torch.float32, torch.float64):
            made = make_batch(component, dtype=dtype)
            losses = made.loss(component)
            assert isinstance(losses, torch.Tensor), f"loss returned {type(losses).__name__}, not a tensor"
            assert losses.shape == (7,), f"7 examples gave losses of shape {tuple(losses.shape)}"
            assert losses.dtype == dtype, f"{dtype} logits gave {losses.dtype} losses"
            assert not (bad := not_finite(losses)), f"the loss is {bad} at ordinary logits"
            objective = component.objective(made.logits, made.candidates, made.state)
            assert objective.shape == (), f"objective has shape {tuple(objective.shape)}; it must be a scalar"
            assert objective.dtype == dtype, f"objective is {objective.dtype} for {dtype} logits"

    def test_the_gradient_is_that_of_the_loss(self, component: Estimator) -> None:
        """By finite differences, in float64; a state that is attached to the logits shows up here."""
        made = make_batch(component)
        assert not (bad := not_finite(made.loss(component))), f"the loss is {bad}, and has no gradient"
        logits = made.logits.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda f: component.loss(f, made.candidates, made.state), (logits,))

    def test_loss_gradient_and_state_are_finite_at_extremes(self, component: Estimator) -> None:
        """Logits of ±1e4 and of ±51 in float32, in all views, early and late; sets of one class and of all but one."""
        for num_classes in (3, 1000):
            ordinary = make_batch(component, num_classes=num_classes, dtype=torch.float32)
            for words, make in EXTREMES.items():
                made = ordinary.at(make(len(ordinary.logits), num_classes))
                where = f"{words}, {num_classes} classes"
                updated = component.update(made.logits, made.candidates, made.state)
                for name, value in updated.items():
                    assert not (bad := not_finite(value)), f"update gives {name!r} that is {bad} at {where}"
                states = {"old": made.state, "new": {**made.state, **updated}}
                if "epoch" in component.needs:
                    states["late"] = {**states["new"], "epoch": torch.tensor(LATE)}
                for words_of_state, state in states.items():
                    at = f"at {where}, {words_of_state} state"
                    _assert_finite(component, attrs.evolve(made, state=state), at)

    def test_functions_are_pure(self, component: Estimator) -> None:
        """They leave their arguments alone, give the same twice, and use no global randomness."""
        made = make_batch(component)
        kept = Batch(made.logits.clone(), made.candidates.clone(), {k: v.clone() for k, v in made.state.items()})
        with global_randomness_untouched(f"estimator {component.name}"):
            first, again = made.loss(component), made.loss(component)
            component.objective(made.logits, made.candidates, made.state)
            component.update(-made.logits, made.candidates, made.state)  # not those that the state was learned from
            component.init_state(made.candidates)
        assert same_numbers(made.logits, kept.logits), "the logits were written to"
        assert torch.equal(made.candidates, kept.candidates), "the candidates were written to"
        for name, value in made.state.items():
            written = not same_numbers(value, kept.state[name])
            assert not written, f"state {name!r} was written to; return new values from update"
        assert same_numbers(first, again), "two calls of loss with the same arguments differ"

    def test_the_work_does_not_grow_with_the_batch(self, component: Estimator) -> None:
        """No loop over examples: 16 times the examples, about as many tensor operations and lines of Python."""
        small, large = (make_batch(component, n=n, dtype=torch.float32) for n in (16, 256))
        for name in ("loss", "objective", "update", "init_state"):
            function = getattr(component, name)

            def work(made: Batch, function: Any = function) -> dict[str, int]:
                given = (made.logits, made.candidates, made.state)
                return work_of(lambda: function(*(given[1:2] if function.__name__ == "init_state" else given)))

            few, many = work(small), work(large)
            for what in few:
                assert many[what] <= 2 * few[what] + 50, (
                    f"{name} takes {few[what]} {what} for 16 examples, {many[what]} for 256: it loops over examples"
                )

    def test_an_examples_loss_does_not_depend_on_its_neighbours(self, component: Estimator) -> None:
        """What works on whole batches belongs in `objective`."""
        if not component.logits_suffice:
            not_applicable(f"it asks the network for more than logits: {', '.join(sorted(component.needs))}")
        made = make_batch(component)
        rows = set(component.init_state(made.candidates))
        alone = torch.cat(
            [
                component.loss(made.logits[i : i + 1], made.candidates[i : i + 1], _rows(made.state, rows, i))
                for i in range(len(made.logits))
            ]
        )
        _assert_close(alone, made.loss(component), "the loss in a batch of one")

    def test_update_returns_state_that_was_declared(self, component: Estimator) -> None:
        """The same names, shapes and types, and no gradient."""
        made = make_batch(component, dtype=torch.float32)
        declared = batches.first_state(component, made.candidates, {}, torch.float32)
        logits = made.logits.clone().requires_grad_()
        updated = component.update(logits.detach(), made.candidates, made.state)
        if component.update_when == "never":
            assert not updated, f"update returns {sorted(updated)}, but update_when is 'never', so it is never stored"
        for name, value in updated.items():
            assert name in declared, f"update returns {name!r}, which neither init_state nor init_shared declares"
            assert value.shape == declared[name].shape, (
                f"update gives {name!r} shape {tuple(value.shape)}, init {tuple(declared[name].shape)}"
            )
            assert value.dtype == declared[name].dtype, f"{name!r} changes from {declared[name].dtype} to {value.dtype}"
            assert not value.requires_grad, f"{name!r} is attached to the graph: use the logits as they are given"
        for name in component.on_candidates:
            for state in (declared, updated):
                assert name not in state or not bool(state[name][~made.candidates].any()), (
                    f"{name!r} is declared on_candidates, but is not 0 off the candidates"
                )

    def test_looking_back_is_pure_and_returns_state_that_was_declared(self, component: Estimator) -> None:
        """`after_epoch` sees all examples; what it returns has the names, shapes and types of what it was given."""
        if type(component).after_epoch is Estimator.after_epoch:
            not_applicable("it does not define after_epoch")
        made = make_batch(component, dtype=torch.float32)
        given = {"seed": torch.tensor(5), "all_logits": made.logits}
        state = {**made.state, **{name: value for name, value in given.items() if name in component.needs}}
        if component.needs >= {"all_logits", "two_networks"}:
            state["second_all_logits"] = made.state["second_logits"]
        kept = {name: value.clone() for name, value in state.items()}
        with global_randomness_untouched(f"estimator {component.name}"):
            new, again = component.after_epoch(made.candidates, state), component.after_epoch(made.candidates, state)
        declared = batches.first_state(component, made.candidates, {}, torch.float32)
        for name, value in new.items():
            assert name in declared, f"after_epoch returns {name!r}, which neither init_state nor init_shared declares"
            assert (value.shape, value.dtype) == (declared[name].shape, declared[name].dtype), (
                f"after_epoch gives {name!r} as {value.dtype} {tuple(value.shape)}, init as {declared[name].dtype} "
                f"{tuple(declared[name].shape)}"
            )
            assert not (bad := not_finite(value)), f"after_epoch gives {name!r} that is {bad}"
            assert torch.equal(value, again[name]), f"two calls of after_epoch give another {name!r}"
        for name, value in state.items():
            assert same_numbers(value, kept[name]), f"after_epoch wrote to {name!r}; return new values"

    def test_a_gradient_that_is_written_out_is_that_of_the_loss(self, component: Estimator) -> None:
        """Losses and gradients as torch finds them from `loss`, at ordinary logits and finite at extreme ones."""
        if not component.has_gradient:
            not_applicable("it leaves its gradient to torch")
        for dtype in (torch.float32, torch.float64):
            made = make_batch(component, dtype=dtype)
            logits = made.logits.clone().requires_grad_()
            losses = component.loss(logits, made.candidates, made.state)
            (gradient,) = torch.autograd.grad(losses.sum(), logits)
            found = component.loss_and_gradient(made.logits, made.candidates, made.state)
            _assert_close(found[0], losses.detach(), "the loss of loss_and_gradient")
            _assert_close(found[1], gradient, "the gradient of loss_and_gradient")
        ordinary = make_batch(component, dtype=torch.float32)
        for words, make in EXTREMES.items():
            made = ordinary.at(make(*ordinary.logits.shape))
            for value in component.loss_and_gradient(made.logits, made.candidates, made.state):
                assert not (bad := not_finite(value)), f"loss_and_gradient gives {bad} at {words}"

    def test_the_promise_is_proven_by_enumeration(self, component: Estimator) -> None:
        """Every set at K classes, under random distributions of the assumed setting and of each within it."""
        if component.kind is Kind.HEURISTIC:
            not_applicable("a heuristic promises nothing that could be enumerated")
        if not component.logits_suffice:
            not_applicable(f"it asks for more than logits: {', '.join(sorted(component.needs))}; nothing is enumerated")
        for setting in Setting:
            if component.assumption.includes(setting):
                broken = _broken_promise(component, setting, self.num_classes)
                assert broken is None, (
                    f"{component.name} promises to be {component.kind} in {component.assumption}, but {broken}"
                )

    def test_the_assumption_is_the_widest(self, component: Estimator) -> None:
        """Where the promise holds more widely than declared, declare that."""
        wider = NEXT_WIDER.get(component.assumption)
        if component.kind is not Kind.UNBIASED:
            not_applicable(f"only unbiased estimators must declare their widest setting, and it is {component.kind}")
        if wider is None:
            not_applicable(f"no setting is wider than {component.assumption}")
        if works_on_batches(component) or not component.logits_suffice:
            not_applicable("it works on whole batches, for which the bias at a single example means nothing")
        assert _broken_promise(component, wider, self.num_classes) is not None, (
            f"{component.name} declares {component.assumption}, but it is {component.kind} in {wider} too"
        )

    def test_training_goes_on_from_a_checkpoint_to_the_same_bits(self, component: Estimator) -> None:
        """Everything that the method remembers is in its state, and survives a file."""
        with torch.random.fork_rng(devices=[]):
            whole = batches.toy_problem(component, lr=self.learning_rate).trainer
            list(whole.epochs(2))
            saved = batches.toy_problem(component, lr=self.learning_rate).trainer
            list(saved.epochs(1))
            file = io.BytesIO()
            torch.save(saved.state_dict(), file)
            file.seek(0)
            resumed = batches.toy_problem(component, lr=self.learning_rate).trainer
            resumed.load_state_dict(torch.load(file, weights_only=True))
            list(resumed.epochs(2))
        _assert_same(whole.state_dict(), resumed.state_dict(), "")

    def test_it_learns(self, component: Estimator) -> None:
        """Three overlapping classes, each example known not to be of one: a few epochs of a small network."""
        if not component.trains:
            not_applicable("it declares that it does not train a model (trains = False)")
        with torch.random.fork_rng(devices=[]):
            problem = batches.toy_problem(component, lr=self.learning_rate)
            list(problem.trainer.epochs(self.epochs))
        reached = problem.accuracy()
        assert reached >= self.learned, f"{self.epochs} epochs reach an accuracy of {reached:.2f}, not {self.learned}"

    def test_many_models_stack_under_vmap_or_it_says_that_they_do_not(self, component: Estimator) -> None:
        """One call for several models gives what one call each gives."""
        if not component.stackable:
            not_applicable("it declares that its models cannot be stacked (stackable = False)")
        made = [make_batch(component, seed=seed) for seed in range(3)]
        logits = torch.stack([each.logits for each in made])
        candidates = torch.stack([each.candidates for each in made])
        state = {name: torch.stack([each.state[name] for each in made]) for name in made[0].state}
        for function in (component.loss, component.objective):
            together = torch.vmap(function)(logits, candidates, state)
            alone = torch.stack([function(each.logits, each.candidates, each.state) for each in made])
            _assert_close(together, alone, f"{function.__name__} under vmap")
        gradients = torch.vmap(torch.func.grad(component.objective))(logits, candidates, state)
        for each, gradient in zip(made, gradients, strict=True):
            alone = torch.func.grad(component.objective)(each.logits, each.candidates, each.state)
            _assert_close(gradient, alone, "the gradient under vmap")
        updated = torch.vmap(component.update)(logits, candidates, state)
        for i, each in enumerate(made):
            for name, value in component.update(each.logits, each.candidates, each.state).items():
                _assert_close(updated[name][i], value, f"{name!r} under vmap")


def _rows(state: State, per_example: set[str], i: int) -> State:
    return {name: value[i : i + 1] if name in per_example else value for name, value in state.items()}


def _broken_promise(estimator: Estimator, setting: Setting, num_classes: int) -> str | None:
    """Return how a promise fails under random distributions of a setting, or None."""
    rng = stream(21)
    instances = FEW_INSTANCES if works_on_batches(estimator) else INSTANCES
    table = random_distribution(setting, instances, num_classes, rng)
    posterior = random_posterior(instances, num_classes, rng)
    if estimator.kind is Kind.CONSISTENT or works_on_batches(estimator):
        found = minimise(estimator, table, posterior)
        wrong, tried = int((~found.right).sum()), len(posterior)
        missed = f"in {setting} its minimiser misses the likeliest class at {wrong} of {tried} instances"
        return missed if wrong else None
    logits = 1.5 * torch.randn(posterior.shape, generator=rng, dtype=torch.float64)
    moments = moments_under(estimator, table, posterior=posterior, logits=logits)
    if bad := not_finite(moments.expectation):
        return f"in {setting} its expected loss is {bad}"
    if estimator.kind is Kind.UPPER_BOUND:
        low = float(moments.bias.min())
        return None if moments.is_upper_bound else f"in {setting} its expectation is {-low:.3g} below the risk"
    return None if moments.is_unbiased else f"in {setting} its bias is {moments.largest_bias:.3g}"


def _assert_close(found: Tensor, wanted: Tensor, what: str) -> None:
    torch.testing.assert_close(found, wanted, equal_nan=True, msg=lambda details: f"{what} is another: {details}")


def _assert_same(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(ours, dict):
        for key in ours:
            _assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            _assert_same(one, other, f"{where}/{i}")
    elif isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), f"{where.lstrip('/')} differs after resuming from a checkpoint"
    else:
        assert ours == theirs, f"{where.lstrip('/')} is {theirs!r} after resuming, not {ours!r}"


def _assert_finite(component: Estimator, made: Batch, at: str) -> None:
    """Loss, objective and the gradient by every view's logits."""
    logits = made.logits.clone().requires_grad_()
    views = {name: value.clone().requires_grad_() for name, value in made.state.items() if name.endswith("_logits")}
    state = {**made.state, **views}
    losses = component.loss(logits, made.candidates, state)
    objective = component.objective(logits, made.candidates, state)
    assert not (bad := not_finite(losses)), f"the loss is {bad} {at}"
    assert not (bad := not_finite(objective)), f"the objective is {bad} {at}"
    if not objective.requires_grad:
        return
    gradients = torch.autograd.grad(objective, [logits, *views.values()], allow_unused=True)
    for name, gradient in zip(["logits", *views], gradients, strict=True):
        assert gradient is None or not (bad := not_finite(gradient)), f"the gradient by {name} is {bad} {at}"
