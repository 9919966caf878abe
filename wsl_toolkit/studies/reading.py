"""Where a study comes from: a TOML or Python file, the name of an installed one, or the folder of an earlier start."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, did_you_mean, one_line
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.checks import shown
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.system.toml_files import read_toml

QUICK_EPOCHS = 3
QUICK_TRIALS = 2


def study_files() -> dict[str, Path]:
    """Return the files of the studies that come with the toolkit and with sound plugins, by the studies' names.

    A plugin ships studies as TOML files in a folder `studies` of its package. A name that is taken already, ours first,
    is told apart by its distribution: `wsl-mine:real-world`.
    """
    found = {file.stem: file for file in sorted((Path(__file__).parent / "builtin").glob("*.toml"))}
    packages: dict[str, str] = {}
    for record in load_plugins().records:
        if record.status == "ok":
            packages.setdefault(record.target.partition(":")[0].partition(".")[0], record.distribution)
    for package, distribution in packages.items():
        spec = find_spec(package)
        for place in (spec.submodule_search_locations if spec else None) or ():  # a plugin of one file has no folder
            for file in sorted((Path(place) / "studies").glob("*.toml")):
                found[file.stem if file.stem not in found else f"{distribution}:{file.stem}"] = file
    return found


def builtin_studies() -> dict[str, dict[str, Any]]:
    """Return the studies that come with the toolkit and its plugins, by name, as plain values."""
    return {name: read_toml(file, "study file") for name, file in study_files().items()}


def find_values(what: str) -> tuple[dict[str, Any], str]:
    """Return the plain values of a file or a built-in study, and what to call their source."""
    path = Path(what)
    try:
        is_file = path.is_file()
    except OSError as error:  # a name longer than any file's
        raise ConfigError(f"{shown(what)} cannot be read: {error.strerror}") from None
    if path.suffix == ".py" and is_file:
        return _from_python(path).to_dict(), what
    if path.suffix == ".toml" or is_file:
        return _with_base(read_toml(path, "study file"), what, path), what
    files = study_files()
    if what not in files:
        hint = did_you_mean(what, files) or f" Built in: {', '.join(files)}."
        raise ConfigError(f"there is no study {what!r}, neither a file nor a built-in.{hint}")
    return _with_base(read_toml(files[what], "study file"), f"study {what}", files[what]), f"study {what}"


def _with_base(values: dict[str, Any], where: str, *files: Path) -> dict[str, Any]:
    """Lay a description over the study that it names as its `base`: a built-in one, or a file from the same folder.

    The last of `files` is the one that the values are from, those before it are the ones that it is the base of.
    """
    if "base" not in values:
        return values
    known, name = study_files(), values["base"]
    if not isinstance(name, str) or (name not in known and not name.endswith(".toml")):
        raise ConfigError(f"{where}: base must be a built-in study or a TOML file, not {shown(name)}")
    file = known[name] if name in known else files[-1].parent / name
    if file.resolve() in [each.resolve() for each in files]:
        raise ConfigError(f"{where}: base {shown(name)} leads back to itself")
    base = _with_base(read_toml(file, "study file"), str(file), *files, file)
    return _overlay(base, {key: value for key, value in values.items() if key != "base"})


def _from_python(path: Path) -> Study:
    """Run a Python file, which the user named and which is therefore trusted, and take its `study`."""
    try:
        found = runpy.run_path(str(path)).get("study")
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path} failed: {one_line(error)}") from error
    if isinstance(found, Mapping):
        return from_dict(found, str(path))
    if not isinstance(found, Study):
        raise ConfigError(f"{path} must define `study`, a wsl_toolkit.studies.Study or a dict like a TOML description")
    return found


def read_study(what: str, *, quick: bool = False, datasets: Sequence[str] = (), epochs: int | None = None) -> Study:
    """Read a study, made smaller where asked; a changed study gets a name that says so."""
    values, where = find_values(what)
    if quick:
        values = make_quick(values, keep_datasets=bool(datasets))
    study = from_dict(values, where)
    if epochs is not None:
        search = attrs.evolve(study.search, epochs=min(epochs, study.search.epochs or epochs))
        study = attrs.evolve(
            study, name=f"{study.name}-{epochs}-epochs", training={**study.training, "epochs": epochs}, search=search
        )
    return study


def make_quick(values: Mapping[str, Any], *, keep_datasets: bool) -> dict[str, Any]:
    """Return a small real study: the description's own [quick] table laid over it, or short runs if it has none."""
    if not isinstance(values.get("quick", {}), Mapping):
        raise ConfigError(f"[quick] must be a table, not {shown(values['quick'])}")
    quick = dict(values.get("quick", {}))
    small = {key: value for key, value in values.items() if key != "quick"}
    small["name"] = f"{values.get('name', 'study')}-quick"
    if not quick:
        quick = {"trials": QUICK_TRIALS, "training": {"epochs": QUICK_EPOCHS}, "search": {"epochs": QUICK_EPOCHS}}
    if keep_datasets:
        quick.pop("settings", None)
    return _overlay(small, quick)


def _overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree of tables over another; lists are replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def restrict(study: Study, datasets: Sequence[str], alphas: Sequence[float], methods: Sequence[str] = ()) -> Study:
    """Keep the settings and methods asked for; the name stays, since what is left out can be run later."""
    settings = study.settings
    if datasets:
        settings = tuple(s for s in settings if s.dataset[0] in datasets or s.name in datasets)
        known = sorted({s.name or s.dataset[0] for s in study.settings})
        for name in datasets:
            if name not in known and name not in {s.dataset[0] for s in study.settings}:
                raise ConfigError(
                    f"study {study.name} has no dataset {name!r}.{did_you_mean(name, known)} It has {', '.join(known)}."
                )
    if alphas:
        settings = tuple(s for s in settings if _alpha(s) in alphas)
    if not settings:
        found = sorted({a for s in study.settings if (a := _alpha(s)) is not None}, reverse=True)
        wanted = ", ".join(f"{alpha:g}" for alpha in alphas)
        raise ConfigError(f"study {study.name} has no such setting: α = {wanted} is not among {found or 'any'}")
    chosen = study.methods
    if methods:
        chosen = tuple(m for m in study.methods if m.label in methods or m.estimator[0] in methods)
        names = [m.estimator[0] for m in study.methods]
        for name in methods:
            if name not in names and name not in [m.label for m in study.methods]:
                labels = ", ".join(dict.fromkeys(m.label for m in study.methods))
                raise ConfigError(
                    f"study {study.name} has no method {name!r}.{did_you_mean(name, names)} It has {labels}."
                )
    return attrs.evolve(study, settings=settings, methods=chosen)


def _alpha(setting: Any) -> float | None:
    return None if setting.generator is None else setting.generator[1].get("alpha")
