"""The contract of a generator: what it draws is what it declares, exactly and every time."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.errors import LabelError, TheoryError
from wsl_toolkit.settings import Setting
from wsl_toolkit.testing.common import (
    ComponentContract,
    global_randomness_untouched,
    not_applicable,
    stream,
    work_of,
)
from wsl_toolkit.theory.enumeration import all_sets, law
from wsl_toolkit.theory.instances import made_data, prepared
from wsl_toolkit.theory.proofs import prove
from wsl_toolkit.theory.sampling_tests import DRAWS, class_p_values, observe

EXAMPLES = 40
"""On how many examples, and on 16 times as many, the work of a draw is counted."""


class GeneratorContract(ComponentContract):
    """Give `component`; give `num_classes` if the parameters fit only one number of classes."""

    num_classes: ClassVar[int] = 4
    """At which every set is enumerated."""
    many_classes: ClassVar[int] = 10
    """At which labels are drawn; the same as `num_classes` where only that fits."""

    def test_parameters_have_defaults(self, component: Generator) -> None:
        """`wsl inspect --all` looks at every generator as it comes; one that cannot have them declares `parameters`."""
        if component.contract.get("parameters"):
            not_applicable("its class declares parameters to try it with")
        type(component)()

    def test_sets_hold_the_true_label_and_are_neither_empty_nor_full(self, component: Generator) -> None:
        """Sampling checks it and would raise; the mask is looked at here once more."""
        data = made_data(self.many_classes)
        mask = component.sample(data.x, data.y, self.many_classes, stream(1)).mask()
        sizes = mask.sum(1)
        assert bool((sizes > 0).all()), "some set is empty"
        assert bool((sizes < self.many_classes).all()), "some set is full"
        if component.setting is not Setting.ANY:
            missing = int((~mask.gather(1, data.y.unsqueeze(1))).sum())
            assert missing == 0, f"{missing} sets lack their true label, but {component.setting} is declared"

    def test_the_same_seed_gives_the_same_sets(self, component: Generator) -> None:
        """Runs are repeated bit for bit, and methods compared on the same sets."""
        data = made_data(self.many_classes)
        with global_randomness_untouched(f"generator {component.name}"):
            first = component.sample(data.x, data.y, self.many_classes, stream(5))
            second = component.sample(data.x, data.y, self.many_classes, stream(5))
        assert first == second, "two draws from the same seed differ: use `rng` and nothing else"

    def test_inputs_and_labels_are_left_alone(self, component: Generator) -> None:
        """They belong to the caller."""
        data = made_data(self.many_classes)
        x, y = data.x.clone(), data.y.clone()
        component.sample(x, y, self.many_classes, stream(2))
        assert torch.equal(x, data.x), "x was written to"
        assert torch.equal(y, data.y), "y was written to"

    def test_one_that_reads_no_inputs_draws_the_same_for_all(self, component: Generator) -> None:
        """Of large data it is given zeros, so that a wrong answer would be another setting."""
        if component.reads_inputs():
            not_applicable("it says that it reads them")
        data = made_data(self.many_classes)
        nothing = torch.zeros(()).expand_as(data.x)
        drawn, blind = (component.sample(x, data.y, self.many_classes, stream(8)) for x in (data.x, nothing))
        assert drawn == blind, "reads_inputs() is False, and other inputs gave other sets"

    def test_images_are_as_welcome_as_vectors(self, component: Generator) -> None:
        """x may have any shape."""
        data = made_data(self.many_classes)
        sets = component.sample(data.x.view(len(data.x), 1, 2, 4), data.y, self.many_classes, stream(3))
        assert len(sets) == len(data.y)

    def test_the_mask_is_boolean_and_on_the_labels_device(self, component: Generator) -> None:
        """On a GPU too, where there is one; the stream may stay on the CPU."""
        for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            data = made_data(self.many_classes)
            x, y = data.x.to(device), data.y.to(device)
            ready = component.prepare(x, y, self.many_classes, stream(4))
            mask = ready.draw(x, y, self.many_classes, stream(4))
            assert mask.dtype == torch.bool, f"the mask is {mask.dtype}"
            assert mask.device == y.device, f"labels are on {y.device}, the mask is on {mask.device}"

    def test_probabilities_are_a_law(self, component: Generator) -> None:
        """Every p(s|x,y) lies in 0..1, in float64, and the sets of each x and y sum to one."""
        if not _has_law(component, self.num_classes):
            not_applicable("it gives no probabilities")
        proof = prove(component, self.num_classes)
        verdict = proof.verdict("normalised")
        assert verdict.holds, f"probabilities do not sum to one: {verdict.witness}"
        ready, x = prepared(component, self.num_classes)
        p = ready.probability(*_grid(x, self.num_classes), self.num_classes)
        assert p is not None
        assert p.dtype == torch.float64, f"probabilities are {p.dtype}; float32 loses what the proof needs"

    def test_samples_match_the_probabilities(self, component: Generator) -> None:
        """A chi-squared test of every instance and class; chance fails it once in a million."""
        if not _has_law(component, self.num_classes):
            not_applicable("it gives no probabilities")
        ready, x = prepared(component, self.num_classes)
        table = law(ready, x, self.num_classes)
        counts = observe(ready, x, self.num_classes, stream(7), DRAWS)
        chances = class_p_values(counts, table)
        instance, y = divmod(int(chances.argmin()), self.num_classes)
        # Every instance and class is a test of its own: the smallest of their p-values is judged by their number.
        worst = float(chances.min()) * chances.numel()
        assert worst > 1e-6, (
            f"samples do not follow the probabilities at instance {instance}, y = {y} (p = {worst:.1e})"
        )

    def test_the_declared_setting_is_proven_by_enumeration(self, component: Generator) -> None:
        """From the generator's own probabilities; one that gives none may declare only the widest settings."""
        if not _has_law(component, self.num_classes):
            assert component.setting in (Setting.GENERAL, Setting.ANY), (
                f"{component.name} declares {component.setting} and gives no probability, so nobody can prove it: "
                "write `probability`, or declare Setting.GENERAL"
            )
            not_applicable(f"it gives no probabilities, and {component.setting} asks for no proof")
        proof = prove(component, self.num_classes)
        assert proof.keeps_promise, (
            f"{component.name} declares {component.setting}, but lies in {proof.region}: "
            f"{proof.verdict(component.setting).witness}"
        )

    def test_the_work_does_not_grow_with_the_number_of_examples(self, component: Generator) -> None:
        """No loop over examples: 16 times the examples, about as many tensor operations and lines of Python."""
        data = made_data(self.many_classes)
        ready = component.prepare(data.x, data.y, self.many_classes, stream(6))

        def work(times: int) -> dict[str, int]:
            x, y = data.x[:EXAMPLES].repeat(times, 1), data.y[:EXAMPLES].repeat(times)
            return work_of(lambda: ready.draw(x, y, self.many_classes, stream(6)))

        few, many = work(1), work(16)
        for what in few:
            assert many[what] <= 4 * few[what] + 100, (
                f"{EXAMPLES} examples take {few[what]} {what}, {16 * EXAMPLES} take {many[what]}: it loops over them"
            )

    def test_too_few_classes_are_refused_in_words(self, component: Generator) -> None:
        """Not with whatever a tensor operation says."""
        with pytest.raises(LabelError):
            component.check_classes(component.min_classes - 1)


def _has_law(component: Generator, num_classes: int) -> bool:
    ready, x = prepared(component, num_classes)
    try:
        law(ready, x, num_classes)
    except TheoryError:
        return False
    return True


def _grid(x: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return every set with the first instance and class 0."""
    sets = all_sets(num_classes)
    return sets, x[:1].expand(len(sets), *x.shape[1:]), torch.zeros(len(sets), dtype=torch.int64)
