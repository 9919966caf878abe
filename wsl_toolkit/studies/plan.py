"""What starting a study would do: whether its description can be run, what changed in it, what is kept, what is new."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.errors import ConfigError, WslError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.features import FeatureMaker, cache_in, check_frozen, weights_of
from wsl_toolkit.runs.tracking.store import HOME
from wsl_toolkit.studies.cells import CellState, cell_state
from wsl_toolkit.studies.checks import shown
from wsl_toolkit.studies.codes import OtherCode, left_behind, other_code, results_of
from wsl_toolkit.studies.description import Cell, Study
from wsl_toolkit.studies.jobs import weights_label
from wsl_toolkit.studies.search import Point, grid, import_optuna
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.training.features import Tell

NEVER = 2**63
"""A time that no result was made at."""


def check_description(study: Study, registry: Registry) -> None:
    """Fail on what would fail later: components, values, every point of a grid, rules that do not suit a method."""
    searched = any(cell.space for cell in study.cells())
    if searched and study.search.strategy != "grid":
        import_optuna()
    for cell in study.cells():
        config = cell.config({}, seed=study.seed, epochs=None, registry=registry)
        if not any(name.startswith("backbone.") for name in cell.space):
            check_frozen(config.create("backbone", registry), config.training)
        if cell.space and study.selection.folds == 1 and config.training.validation == 0:
            raise ConfigError(
                f"study {study.name}: rule {study.selection.rule!r} needs a held-out part: set training.validation, "
                "or selection.folds for cross-validation"
            )
        for point in _samples(cell):
            cell.config(point, seed=study.seed, epochs=None, registry=registry)
    if searched and study.selection.rule == "held-out-risk":
        for method in study.methods:
            if not registry.create("estimator", *method.estimator).logits_suffice:
                raise ConfigError(
                    f"study {study.name}: {method.label} has no risk on held-out sets (its loss needs more than "
                    "logits): choose another selection rule"
                )


def _samples(cell: Cell) -> Iterator[Point]:
    """Yield every point of a grid; of a space that is sampled, every listed value and both ends of every range."""
    if cell.study.search.strategy == "grid":
        yield from grid(cell.space)
        return
    for name, values in cell.space.items():
        for value in values if isinstance(values, list) else (values["low"], values["high"]):
            yield {name: value}


def data_digests(study: Study, registry: Registry, data_dir: Path) -> dict[str, str]:
    """Return the digest of every dataset of a study, by label, and of every file of a frozen network's weights."""
    digests: dict[str, str] = {}
    for setting in study.settings:
        name, values = setting.dataset
        if setting.data_label not in digests:
            with attributed(registry, "dataset", name):
                digests[setting.data_label] = load_data(registry.create("dataset", name, values), data_dir).digest()
    for cell in study.cells():
        for point in _networks(cell.space):
            config = cell.config(point, seed=study.seed, epochs=None, registry=registry)
            label, backbone = weights_label(config), config.create("backbone", registry)
            if label not in digests and (path := weights_of(backbone, data_dir) or backbone.start_file()):
                digests[label] = _file_digest(path)
    return digests


def _networks(space: Mapping[str, Any]) -> list[Point]:
    """Return the parts of a search's points that say which network is trained."""
    named = {
        key: values for key, values in space.items() if key.startswith("backbone.") and isinstance(values, Sequence)
    }
    return [dict(zip(named, values, strict=True)) for values in itertools.product(*named.values())]


def _file_digest(path: Path) -> str:
    from wsl_toolkit.networks import file_digest  # torch, which a look at a study does without

    return file_digest(path)


def compute_features(
    study: Study,
    registry: Registry,
    data_dir: Path,
    device: str,
    note: Callable[[str], None],
    show: Tell = lambda done, of: None,
) -> None:
    """Have the features of frozen networks in the workspace before workers start, each of which would compute them."""
    done: list[tuple[Any, Backbone]] = []
    for setting in study.settings:
        backbone: Backbone = registry.create("backbone", *setting.backbone)
        same = (setting.dataset, attrs.evolve(backbone, frozen_head=""))
        if not backbone.frozen or same in done:
            continue
        done.append(same)
        name, values = setting.dataset
        with attributed(registry, "dataset", name):
            data = load_data(registry.create("dataset", name, values), data_dir)
        cache = cache_in(HOME)
        FeatureMaker(
            registry=registry, data_dir=data_dir, cache=cache, device=device, tell=_said(note, data.name, show)
        ).embedded(data, backbone)


def _said(note: Callable[[str], None], name: str, show: Tell) -> Tell:
    """Return what says once that features are being computed, and then shows how many are."""
    begun: list[int] = []

    def tell(done: int, of: int) -> None:
        if not begun:
            note(f"a frozen network runs over the {of:,} examples of {name}, once")
        begun.append(done)
        show(done, of)

    return tell


def held_out_counts(study: Study, registry: Registry, data_dir: Path) -> dict[str, int]:
    """Return how many held-out examples with a candidate set each setting has, if the selection needs to know."""
    if not study.selection.needs_held_out_count:
        return {}
    from wsl_toolkit.data.dataset import split
    from wsl_toolkit.system.random_streams import stream

    counts = {}
    for cell in study.cells():
        setting = cell.setting
        if cell.space and setting.label not in counts:
            name, values = setting.dataset
            with attributed(registry, "dataset", name):
                data = load_data(registry.create("dataset", name, values), data_dir)
            training = cell.config({}, seed=study.seed, epochs=None, registry=registry).training
            held_out = split(data, training.validation, training.test, stream(study.seed, "split")).validation
            own = data.candidates if setting.generator is None else None
            counts[setting.label] = len(held_out) if own is None else len(own.take(held_out).labelled())
    return counts


@attrs.frozen(kw_only=True)
class CellPlan:
    """How many runs of a cell are there already, and how many are to be computed."""

    setting: str
    method: str
    kept: int
    to_compute: int
    made_by: str = ""
    """Short names of the code behind its results, or of the installed one if it has none."""


@attrs.frozen(kw_only=True)
class Plan:
    """What starting a study would do."""

    study: str
    known: bool
    """Whether it was started here before."""
    changes: tuple[str, ...]
    """What differs from the description of the earlier start, a line each."""
    cells: tuple[CellPlan, ...]
    unused: int
    """Results of the earlier description that are not part of this one."""
    other_code: OtherCode = attrs.field(factory=OtherCode)
    """Results that are there, and were made by other code than is installed."""
    keep_old: bool = False
    """Whether these are used as they are."""
    again: bool = False
    """Whether everything is computed anew."""

    @property
    def kept(self) -> int:
        """How many runs are there already."""
        return sum(cell.kept for cell in self.cells)

    @property
    def to_compute(self) -> int:
        """How many runs there will be, as far as can be known before a search is over."""
        return sum(cell.to_compute for cell in self.cells)

    @property
    def codes(self) -> dict[str, str]:
        """The code behind each cell, by the cells' labels."""
        return {f"{cell.method} | {cell.setting}": cell.made_by for cell in self.cells}

    def to_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {**attrs.asdict(self), "kept": self.kept, "to_compute": self.to_compute}

    @property
    def lines(self) -> list[str]:
        """The plan as people read it."""
        first = f"study {self.study} "
        if not self.known:
            first += "is new here"
        else:
            first += "has another description than before:" if self.changes else "is described as before"
        counts = f"{_runs(self.kept)} kept, {_runs(self.to_compute)} to be computed"
        if self.unused:
            counts += f"; {_runs(self.unused)} of the earlier description no longer used (the files stay)"
        return [first, *(f"  {change}" for change in self.changes), *self._code_lines(), counts]

    def _code_lines(self) -> list[str]:
        if self.again:
            return ["everything is computed anew, because of --again"]
        if not self.other_code.results:
            return []
        kept, anew = "used all the same, because of --keep-old", "computed anew (--keep-old uses what is there)"
        fate = kept if self.keep_old else anew
        return [f"{self.other_code.sentence}; {fate}:", *(f"  {line}" for line in self.other_code.changes)]


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def make_plan(
    whole: Study,
    chosen: Study,
    folder: StudyFolder,
    registry: Registry,
    digests: Mapping[str, str],
    held_out: Mapping[str, int],
    *,
    keep_old: bool = False,
    again: bool = False,
) -> Plan:
    """Return what a start of the chosen part of a study would do, from what is on disk; nothing is written."""
    since = NEVER if again else None
    counts = {**folder.held_out(), **held_out}
    results = Results(folder, registry, digests, counts, keep_old=keep_old, since=since)
    states = [cell_state(cell, results, registry) for cell in chosen.cells()]
    changes: tuple[str, ...] = ()
    unused = 0
    if folder.exists:
        try:
            earlier = folder.read_study()
            changes = tuple(differences(earlier, whole))
            if changes:
                unused = len(_done(earlier, results, registry) - _done(whole, results, registry))
        except WslError as error:
            changes = (f"the earlier description cannot be read ({error}), and is replaced",)
    return Plan(
        study=whole.name,
        known=folder.exists,
        changes=changes,
        cells=tuple(_cell_plan(state, results) for state in states),
        unused=unused,
        other_code=other_code(states, folder, registry) if keep_old else left_behind(states, results),
        keep_old=keep_old,
        again=again,
    )


def _cell_plan(state: CellState, results: Results) -> CellPlan:
    kept = state.known - len(state.missing)
    cell, jobs = state.cell, state.all_jobs()
    made_by = {result.made_by for result in results_of(state)} or {results.expected(job) for job in jobs[:1]}
    return CellPlan(
        setting=cell.setting.label,
        method=cell.method.label,
        kept=kept,
        to_compute=state.planned - kept,
        made_by="+".join(sorted(made_by)),
    )


def _done(study: Study, results: Results, registry: Registry) -> set[str]:
    """Return the ids of a description's jobs that have a result."""
    states = [cell_state(cell, results, registry) for cell in study.cells()]
    return {job.id for state in states for job in state.all_jobs() if results.get(job) is not None}


def differences(old: Study, new: Study) -> list[str]:
    """Return what differs between two descriptions, a line each: values that changed, what was added and removed."""
    before, after = old.to_dict(), new.to_dict()
    lists = ("settings", "methods", "quick")
    lines = list(_changed(_flat(before, lists), _flat(after, lists)))
    for what, one, other in (
        ("setting", {s.label: s for s in old.settings}, {s.label: s for s in new.settings}),
        ("method", {m.label: m for m in old.methods}, {m.label: m for m in new.methods}),
    ):
        lines += [f"{what} {label}: added" for label in other if label not in one]
        lines += [f"{what} {label}: removed" for label in one if label not in other]
        for label in one:
            if label in other:
                tables = [_flat(attrs.asdict(item, recurse=False)) for item in (one[label], other[label])]
                lines += [f"{what} {label}: {line}" for line in _changed(*tables)]
    return lines


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            ends = (shown(table[key]) if key in table else "not set" for table in (before, after))
            yield f"{key}: {' → '.join(ends)}"


def _flat(table: Mapping[str, Any], leave_out: tuple[str, ...] = (), prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one with dotted names; what is None counts as not given."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, prefix=f"{prefix}{key}.")
        elif key not in leave_out and value is not None:
            flat[f"{prefix}{key}"] = value
    return flat
