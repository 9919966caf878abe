"""Networks that some methods put around the backbone; imported only where one is built, for this needs torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit import State
from wsl_toolkit.augmentation import cutout
from wsl_toolkit.networks import Extended, classifier, logits_and_features

POINTS = 8
"""Points on the side of an image that a decoder decodes to."""


def redrawn(network: nn.Module) -> nn.Module:
    """Return a network of the same shape whose layers start anew, each as torch starts it."""
    other = copy.deepcopy(network)
    for layer in other.modules():
        reset: Callable[[], Any] | None = getattr(layer, "reset_parameters", None)
        if reset is not None:
            reset()
    return other


class Fixed(Extended):
    """The usual extras, and `fixed_logits`: the logits once more, as constants, for targets that are made of them."""

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return logits and extras, the constants among them."""
        logits, extras = super().look(inputs)
        return logits, {**extras, "fixed_logits": logits.detach()}


class MixedViews(Fixed):
    """A weak and a strong view, and what comes of both mixed with another example's, by one λ ~ Beta(a, a)."""

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the logits of the weak view, and features of both views, mixed and not."""
        weak, strong = self.weaken(inputs), self.augment(inputs)
        logits, extras = self.outputs(weak)
        view_logits, more = self.outputs(strong, "view_")
        partner = torch.randperm(len(inputs), device=inputs.device)
        share = torch.distributions.Beta(self.mixing, self.mixing).sample().to(inputs)
        for view, prefix in ((weak, "mixed_"), (strong, "mixed_view_")):
            mixed_logits, mixed = self.outputs(share * view + (1 - share) * view[partner], prefix)
            extras |= {f"{prefix}logits": mixed_logits, **mixed}
        extras |= {**more, "view_logits": view_logits, "fixed_logits": logits.detach()}
        return logits, {**extras, "mixed_partner": partner, "mixed_share": share}


class Crossed(Extended):
    """Two networks on a weak and a strong view, and on both views of all examples mixed with each other.

    Extras of the second network begin with `second_`: `fixed_logits` and `fixed_view_logits`, constants; `mixed_logits`
    of mixed weak views and `mixed_view_logits` of mixed strong ones; `mixed_partner` [2B], places among the weak views
    and then the strong ones, and `mixed_share`, both drawn for each network.
    """

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the first network's logits of the weak view, and all else as extras."""
        assert self.second is not None
        weak, strong = self.weaken(inputs), self.augment(inputs)
        logits, extras = self.looks_of(self.network, weak, strong)
        second_logits, more = self.looks_of(self.second, weak, strong)
        return logits, {**extras, "second_logits": second_logits, **{f"second_{n}": v for n, v in more.items()}}

    def looks_of(self, network: nn.Module, weak: Tensor, strong: Tensor) -> tuple[Tensor, State]:
        """Return one network's logits of the weak view, and its extras."""
        both, logits = torch.cat([weak, strong]), network(weak)
        partner, share = torch.arange(len(both), device=both.device), both.new_ones(())
        if self.mixing:
            partner = torch.randperm(len(both), device=both.device)
            share = torch.distributions.Beta(self.mixing, self.mixing).sample().to(both)
            share = torch.maximum(share, 1 - share)
        with torch.no_grad():
            view_logits = network(strong)
        mixed_logits, mixed_view_logits = network(share * both + (1 - share) * both[partner]).chunk(2)
        return logits, {
            "fixed_logits": logits.detach(),
            "fixed_view_logits": view_logits,
            "mixed_logits": mixed_logits,
            "mixed_view_logits": mixed_view_logits,
            "mixed_partner": partner,
            "mixed_share": share,
        }


class Centred(Extended):
    """The usual extras, and `bias_logits` [B, K]: what the last layer makes of a moving mean of all features.

    They are the same for every example, and constants. Predictions are logits less `log_share` of them.
    """

    def __init__(
        self,
        network: nn.Module,
        needs: frozenset[str],
        log_share: Callable[[Tensor], Tensor],
        feature_decay: float,
        **options: Any,
    ) -> None:
        super().__init__(network, needs, **options)
        self.log_share = log_share
        self.feature_decay = feature_decay
        self.register_buffer("mean", torch.zeros(classifier(network).in_features))

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return logits and extras; the mean follows the features of all views first."""
        logits, extras = super().look(inputs)
        mean = self.get_buffer("mean")
        with torch.no_grad():
            seen = torch.stack([value for name, value in extras.items() if name.endswith("features")]).mean((0, 1))
            mean.lerp_(seen.to(mean.dtype), 1 - self.feature_decay)
            bias = classifier(self.network)(mean)
        return logits, {**extras, "bias_logits": bias.expand_as(logits)}

    def predictor(self) -> nn.Module:
        """Return the network without its bias."""
        return Unbiased(self.network, self.get_buffer("mean"), self.log_share)


class Unbiased(nn.Module):
    """Logits less the logarithm of the shares that the last layer gives a mean of features."""

    def __init__(self, network: nn.Module, mean: Tensor, log_share: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.log_share = log_share
        self.register_buffer("mean", mean)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.network(inputs)
        return logits - self.log_share(classifier(self.network)(self.mean))


class HeadedTwice(Extended):
    """A second last layer beside the network's own, and a layer that weighs both answers.

    Extras of the second one begin with `tail_`: `fixed_logits`, constants of the weak view; `view_logits` of a strong
    one; `mixed_logits` of mixed weak ones. `fused_logits` weigh both classifiers' answers, which are constants there.
    """

    def __init__(self, network: nn.Module, needs: frozenset[str], **options: Any) -> None:
        super().__init__(network, needs, **options)
        own = classifier(network)
        classes = own.out_features
        self.tail = nn.Linear(own.in_features, classes)
        self.attention = nn.Linear(2 * classes, 2)
        self.register_buffer("share", torch.full((classes,), 1 / classes))

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the network's logits of the weak view, and all else as extras."""
        weak = self.weaken(inputs)
        partner = torch.randperm(len(inputs), device=inputs.device)
        share = torch.distributions.Beta(self.mixing, self.mixing).sample().to(inputs)
        share = torch.maximum(share, 1 - share)
        views = {"": weak, "view_": self.augment(inputs), "mixed_": share * weak + (1 - share) * weak[partner]}
        extras: State = {"mixed_partner": partner, "mixed_share": share}
        for prefix, view in views.items():
            logits, features = self.outputs(view, prefix)
            extras |= {f"{prefix}logits": logits, f"tail_{prefix}logits": self.tail(features[f"{prefix}features"])}
            extras |= features
        logits = extras.pop("logits")
        extras |= {"fixed_logits": logits.detach(), "tail_fixed_logits": extras["tail_logits"].detach()}
        fused = weighed(extras["fixed_logits"], extras["tail_fixed_logits"], self.get_buffer("share"), self.attention)
        return logits, {**extras, "fused_logits": fused}

    def after_epoch(self, state: State) -> None:
        """Take over the shares of the classes, which predictions are made with."""
        self.get_buffer("share").copy_(state["share"])

    def predictor(self) -> nn.Module:
        """Return both classifiers, weighed."""
        return Weighed(self.network, self.tail, self.attention, self.get_buffer("share"))


class Weighed(nn.Module):
    """Two last layers on one network's features, whose answers a third layer weighs."""

    def __init__(self, network: nn.Module, tail: nn.Module, attention: nn.Module, share: Tensor) -> None:
        super().__init__()
        self.network, self.tail, self.attention = network, tail, attention
        self.register_buffer("share", share)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return weighed answers, as logits."""
        logits, features = logits_and_features(self.network, inputs)
        return weighed(logits, self.tail(features), self.get_buffer("share"), self.attention)


def weighed(head: Tensor, tail: Tensor, share: Tensor, attention: nn.Module) -> Tensor:
    """Return w₁ softmax(head - log(share + 1e-5)) + w₂ softmax(tail), [B, K]; w is a unit vector by `attention`."""
    answers = torch.softmax(head - torch.log(share + 1e-5), dim=-1), torch.softmax(tail, dim=-1)
    weights = torch.softmax(nn.functional.leaky_relu(attention(torch.cat(answers, dim=-1))), dim=-1)
    first, second = nn.functional.normalize(weights, dim=-1).split(1, dim=-1)
    answer: Tensor = first * answers[0] + second * answers[1]
    return answer


class Twin(Extended):
    """The network and another of its shape that sees the same views; its outputs are the extras `twin_…`."""

    def __init__(self, network: nn.Module, needs: frozenset[str], **options: Any) -> None:
        super().__init__(network, needs, **options)
        self.twin = redrawn(network)

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the network's logits of the weak view; of both strong views, and the twin's of all, as extras."""
        weak, *strong = self.weaken(inputs), self.augment(inputs), self.augment(inputs)
        extras = {f"{name}logits": self.network(view) for name, view in zip(("view_", "third_"), strong, strict=True)}
        for name, view in zip(("", "view_", "third_"), (weak, *strong), strict=True):
            extras[f"twin_{name}logits"] = self.twin(view)
        return self.network(weak), extras


class Distilled(Extended):
    """A student and its momentum copy, the teacher, on three views: one to distil from, a strong one, a weak one."""

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return both networks' logits of the view to distil from, and the features that are contrasted.

        Those are the student's of the strong view, and the teacher's of the weak one.
        """
        weak, strong = self.weaken(inputs), self.augment(inputs)
        shown = self.weaken(inputs)
        if inputs.ndim == 4 and shown is not inputs:
            shown = cutout(shown)
        _, extras = self.outputs(strong)
        logits, _ = self.outputs(shown)
        _, slow = self.slow_outputs(weak)
        slow_logits, _ = self.slow_outputs(shown)
        return logits, {**extras, "momentum_features": slow["momentum_features"], "momentum_logits": slow_logits}


class Variational(Extended):
    """The network, an encoder of its shape, and a decoder from label distributions to inputs.

    The decoder works on samples that only the estimator can draw, so its weights are extras too: `decoder_…`. What it
    decodes to, `inputs`, is the flattened input of a network that begins with a linear layer, and images averaged to
    8×8 points for one that begins with a convolution, whose size of images is not known before it sees some.
    """

    def __init__(self, network: nn.Module, needs: frozenset[str], num_classes: int) -> None:
        super().__init__(network, needs)
        self.twin = redrawn(network)
        first = next(layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d))
        self.pooled = isinstance(first, nn.Conv2d)
        width = first.in_channels * POINTS**2 if isinstance(first, nn.Conv2d) else first.in_features
        self.decoder = nn.ModuleDict({"hidden": nn.Linear(num_classes, width), "output": nn.Linear(width, width)})

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the network's logits, and as extras the encoder's, what is to be decoded, the decoder and a seed."""
        goal = nn.functional.adaptive_avg_pool2d(inputs, POINTS) if self.pooled else inputs
        extras = {"twin_logits": self.twin(inputs), "inputs": goal.flatten(1)}
        extras |= {f"decoder_{name.replace('.', '_')}": weight for name, weight in self.decoder.named_parameters()}
        extras["seed"] = torch.randint(2**53, (), device=inputs.device)
        return self.network(inputs), extras
