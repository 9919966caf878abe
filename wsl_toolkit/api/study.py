"""Studies from Python: described by objects, tables or a file; run, resumed and read; shared with `wsl study`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.api.components import described, registry_with
from wsl_toolkit.api.data import default_data_dir
from wsl_toolkit.api.display import shown
from wsl_toolkit.components import Component
from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import parameters_of, plain
from wsl_toolkit.studies import description
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.codes import other_code
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.reading import find_values, make_quick
from wsl_toolkit.studies.report import build, numbers
from wsl_toolkit.studies.report.against import (
    WITHIN,
    against_rows,
    check_within,
    compare,
    parse_published,
    read_published,
)
from wsl_toolkit.studies.status import HOME, started_study, status_row
from wsl_toolkit.studies.store import StudyFolder, known_studies
from wsl_toolkit.studies.work import OldResults, Part, Workers, carry_out, prepare

if TYPE_CHECKING:
    import pandas as pd


class _Progress:
    """Prints a study's notes, and, if asked, a line a cell, on standard error."""

    def __init__(self, *, verbose: bool) -> None:
        self.verbose = verbose

    def features(self, done: int, of: int) -> None:
        """Say nothing."""

    def begin(self, done: int, total: int) -> None:
        """Say where the study stands."""
        self._say(f"{done} of {total} runs are done already" if done else f"{total} runs to do")

    def advance(self, epochs: int) -> None:
        """Say nothing."""

    def job(self, done: int, total: int) -> None:
        """Say nothing."""

    def cell(self, state: CellState, done: int, total: int) -> None:
        """Say that a cell is complete."""
        self._say(f"{state.cell.label} is complete ({done} of {total} runs)")

    def note(self, text: str) -> None:
        """Print a note."""
        print(f"note: {text}", file=sys.stderr)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text, file=sys.stderr)


class Study:
    """Settings x methods x search space x trials, selected by a rule that sees no test label.

    Give a file, the name of a built-in study or of one that was started here, a dict like a TOML description, or the
    parts of one:

        wsl.Study(
            name="mine",
            settings=[{"dataset": "digits", "generator": "mcl-skewed", "backbone": "linear"}],
            methods=["ppl", "cc"],
            training={"epochs": 5},
            trials=3,
        )

    Components are names, tables or objects. Results lie in `wsl-runs/`, where `wsl study` finds them, and the reverse:
    what either has computed the other never does again.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | description.Study | None = None,
        *,
        quick: bool = False,
        **parts: Any,
    ) -> None:
        """Read a description; `quick` makes it small, as `wsl study run --quick` does."""
        if (source is None) == (not parts):
            raise ConfigError("a study is a file, a name or a dict, or else is given by its parts (name=…, settings=…)")
        objects: list[Component] = []
        if isinstance(source, str | Path):
            values, where = _find(str(source))
        else:
            whole = source.to_dict() if isinstance(source, description.Study) else source
            values, where = _plain(parts if whole is None else whole, objects), "wsl_toolkit.Study"
        if quick:
            values = make_quick(values, keep_datasets=False)
        self.description = from_dict(values, where)
        """The whole description, checked and frozen."""
        self._registry = registry_with(*objects)

    @property
    def name(self) -> str:
        """Its name, by which `wsl study` knows it."""
        return self.description.name

    @property
    def folder(self) -> Path:
        """Where its description, its results and its report lie."""
        return StudyFolder(HOME, self.name).path

    def to_dict(self) -> dict[str, Any]:
        """Return the description as a TOML file would have it."""
        return self.description.to_dict()

    def run(
        self,
        *,
        jobs: int = 1,
        datasets: Sequence[str] = (),
        alphas: Sequence[float] = (),
        methods: Sequence[str] = (),
        data_dir: str | Path | None = None,
        device: str = "auto",
        tracking_uri: str | None = None,
        keep_old: bool = False,
        again: bool = False,
        verbose: bool = False,
    ) -> Study:
        """Compute what is missing, of all or of the named part, and return the study.

        One job at a time runs in this process; with more, worker processes are started, and a script needs the usual
        `if __name__ == "__main__":`. Run it again after an interruption: what is finished is never done again, unless
        other code made it than is installed (`keep_old` uses that, too), or `again` asks for it.
        """
        where = default_data_dir(data_dir)
        part = Part(datasets=datasets, alphas=alphas, methods=methods)
        executor = "inline" if jobs == 1 else "local"
        ready = prepare(self.description, part, self._registry, where, executor, OldResults(keep=keep_old, again=again))

        @contextmanager
        def progress() -> Iterator[_Progress]:
            yield _Progress(verbose=verbose)

        done = carry_out(ready, Workers(executor=executor, jobs=jobs, device=device), where, tracking_uri, progress)
        if done.failure is not None:
            raise done.failure
        return self

    def status(self) -> pd.DataFrame:
        """Return a row a cell: setting, method, runs that are done and planned, what was chosen, its state."""
        return _frame([status_row(state) for state in self._states()])

    def table(self, key: str = "accuracy", *, text: bool = False) -> pd.DataFrame:
        """Return a table of the report: accuracy, risk, pairs, ranks, selection, protocol.

        Numbers are unrounded means; with `text`, cells are as the report prints them, standard errors included.
        """
        import pandas as pd

        tables = {table.key: table for table in self._report().tables}
        if not tables:
            raise ConfigError(f"study {self.name} has no results yet: run it first")
        if key not in tables:
            raise ConfigError(
                f"the report has no table {key!r}.{did_you_mean(key, tables)} It has {', '.join(tables)}."
            )
        found = tables[key]
        rows = [[e.text if text or e.value is None else e.value for e in row] for row in found.rows]
        return pd.DataFrame(rows, columns=list(found.columns))

    def trials(self) -> pd.DataFrame:
        """Return a row a trial: where, seed, hyper-parameters, the last epoch's metrics."""
        return _frame(numbers.trial_rows(self._states()))

    def curves(self) -> pd.DataFrame:
        """Return a row an epoch of each trial, with every metric."""
        return _frame(numbers.trial_curve_rows(self._states()))

    def search(self) -> pd.DataFrame:
        """Return a row a point of each search, with its score by the rule, and whether it was chosen."""
        frame = _frame(numbers.search_rows(self._states()))
        if "chosen" in frame:
            frame["chosen"] = frame["chosen"] == "yes"
        return frame

    def pairs(self) -> pd.DataFrame:
        """Return a row a pair of methods in each setting: mean difference and p-values."""
        return _frame(numbers.pair_rows(self.description, self._states()))

    def against(self, published: str | Path | pd.DataFrame, *, within: float = WITHIN) -> pd.DataFrame:
        """Return published accuracies beside ours: a row each, with the difference and a verdict on it.

        They are a CSV file, or a frame, with the columns dataset, method and test_accuracy_percent and, where they are
        known, standard_deviation, standard_error, sets, protocol and source. Accuracies that are at most `within`
        points apart count as met; what this study has not run says so.
        """
        check_within(within)
        theirs = (
            read_published(Path(published))
            if isinstance(published, str | Path)
            else parse_published(published.to_csv(index=False), "the frame of published numbers")
        )
        return _frame(against_rows(compare(self.description, self._states(), theirs), within))

    def figure(self, name: str = "accuracy") -> Any:
        """Return a figure of the report: accuracy, risk, risk-spread, critical-difference, search-01 and so on.

        A study of the paper's tables has risk-against-paper, too.
        """
        drawn = build.build_figures(self._report())
        if name not in drawn:
            raise ConfigError(
                f"study {self.name} has no figure {name!r}.{did_you_mean(name, drawn)} "
                f"It has {', '.join(drawn) or 'none yet: run it first'}."
            )
        return shown(drawn[name])

    def _states(self) -> list[CellState]:
        return study_states(self.description, StudyFolder(HOME, self.name), self._registry)

    def _report(self) -> build.Report:
        states = self._states()
        other = other_code(states, StudyFolder(HOME, self.name), self._registry)
        return build.build_report(self.description, states, other_code=other)

    def __repr__(self) -> str:
        study = self.description
        return (
            f"Study({study.name}: {len(study.settings)} settings x {len(study.methods)} methods, {study.trials_words})"
        )

    def _repr_html_(self) -> str:
        return str(self.status().to_html(index=False))


def _find(what: str) -> tuple[dict[str, Any], str]:
    """Return a file's or a built-in study's description, or that of a study which was started here."""
    if not Path(what).suffix and what in known_studies(HOME):
        return started_study(what)[1].to_dict(), f"study {what}"
    return find_values(what)


def _plain(value: Any, objects: list[Component]) -> Any:
    """Return a description whose components are tables; the objects that were found in it are remembered."""
    if isinstance(value, Component):
        objects.append(value)
        name, values = described(value)
        defaults = {key: plain(parameter.default) for key, parameter in parameters_of(type(value)).items()}
        # Defaults are left out, as a file leaves them out: tables show what a description gives.
        return {"name": name, **{key: item for key, item in values.items() if item != defaults[key]}}
    if isinstance(value, Mapping):
        return {key: _plain(item, objects) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, objects) for item in value]
    return value


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)
