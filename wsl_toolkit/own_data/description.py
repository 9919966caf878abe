"""What a fit came to, in words that JSON can hold: for a model's header, for MLflow, for `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.own_data.averaging import AverageChoice
from wsl_toolkit.own_data.choices import Choice, NetworkChoice, TreesChoice
from wsl_toolkit.own_data.fitted import Fitted
from wsl_toolkit.own_data.judging import SELECTED_BY
from wsl_toolkit.own_data.set_laws import LAWS, LawLikelihood
from wsl_toolkit.parameters import values_of

if TYPE_CHECKING:
    from wsl_toolkit.own_data.fitting import FitOptions


def describe(options: FitOptions, fitted: Fitted) -> dict[str, Any]:
    """Return what was fitted, for a model's metadata and for tracking."""
    choice = fitted.choice
    training: dict[str, Any] = {"seed": options.seed}
    made: dict[str, Any] = {"estimator": {"name": options.estimator.name, **values_of(options.estimator)}}
    if isinstance(choice, AverageChoice):
        made["backbone"] = {"name": choice.name}
        # A backbone for each member, as the members lie in the model's file.
        made["backbones"] = [_backbone(part.choice) for part in choice.parts for _ in range(choice.models)]
        made["averaged"] = [part.to_dict() for part in choice.parts]
    else:
        made["backbone"] = _backbone(choice)
    if isinstance(choice, TreesChoice):
        # No estimator of the registry: boosting by confidences maximises the likelihood, see `own_data.trees`.
        made["estimator"] = {"name": LawLikelihood.name}
    elif isinstance(choice, NetworkChoice):
        training = choice.training.to_dict()
        if choice.law != LAWS[0]:
            made["estimator"] = {"name": LawLikelihood.name}
    if options.transform is not None:
        made["transform"] = {"name": options.transform.name, **values_of(options.transform)}
    if fitted.change is not None:
        made["sets"] = attrs.asdict(fitted.change)
    return {
        **made,
        "training": training,
        "temperature": fitted.temperature,
        "selected_by": SELECTED_BY,
        "tried": [dict(each) for each in fitted.tried],
        "left_out": dict(fitted.left_out),
        "set_laws": dict(fitted.laws),
        "refit": options.refit,
        "use_known_labels": options.use_known_labels,
    }


def _backbone(choice: Choice) -> dict[str, Any]:
    """Return what a file must say of a model so that it can be built again."""
    own = choice.settings() if isinstance(choice, TreesChoice) else values_of(choice.backbone)
    return {"name": choice.name, **own}


def shares(about: Mapping[str, Any]) -> dict[str, float]:
    """Return the kinds of models that were chosen with their weights, the weightiest first; of a single one, all."""
    found: dict[str, float] = {}
    for part in about.get("averaged") or [{"model": about["backbone"]["name"], "weight": 1.0}]:
        found[part["model"]] = found.get(part["model"], 0.0) + part["weight"]
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def title(about: Mapping[str, Any]) -> str:
    """Return what was chosen, for people: a model's name, or those of the averaged ones with their weights."""
    name = str(about["backbone"]["name"])
    told = ", ".join(f"{own} {weight:.0%}" for own, weight in shares(about).items())
    return f"{name} ({told})" if "averaged" in about else name
