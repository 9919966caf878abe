"""Tables (CSV, TSV, Parquet) and folders of images with candidate sets: a user's own data.

The built-in plugin registers these classes as datasets, like any other; the registry is the one place to look for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_toolkit.components import Dataset
from wsl_toolkit.data.formats.paths import locate
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import param

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.data.formats.table_layout import Layout
    from wsl_toolkit.data.formats.text_dialect import Given


@attrs.frozen(kw_only=True)
class LabelledTable(Dataset):
    """What all tables of candidate sets share: which column is what."""

    candidates_column: tuple[str, ...] = param(
        (), help="column of candidate sets (a|b or a JSON list); several: annotators, see combine [default: candidates]"
    )
    complementary_column: str | None = param(None, help="column of classes that an example does not belong to")
    class_columns: tuple[str, ...] = param(
        (), help="0/1 columns, one for each class [default: all that begin 'class:']"
    )
    label_column: str | None = param(None, help="column of true labels, empty where unknown [default: label]")
    id_column: str | None = param(None, help="column that names the examples [default: id]")
    weight_column: str | None = param(None, help="column that says how much each row counts in training, 0 or more")
    classes: tuple[str, ...] = param((), help="all classes, in order [default: those that occur, sorted]")
    classes_file: Path | None = param(None, help="a text file with all classes, one a line")
    combine: str = param(
        "union", help="how several annotators' sets become one", choices=("union", "intersection", "vote")
    )
    separator: str = param("|", help="what separates the classes of a set")
    ignore: tuple[str, ...] = param((), help="columns to leave out")
    empty: str = param(
        "refuse",
        help="rows whose candidate set is empty: refuse the file, take them as unlabelled, or skip them",
        choices=("refuse", "unlabelled", "skip"),
    )

    def layout(self, categorical: tuple[str, ...] = (), **more: Any) -> Layout:
        """Return which column is what."""
        from wsl_toolkit.data.formats.table_layout import Layout

        return Layout(
            candidates=self.candidates_column,
            complementary=self.complementary_column,
            indicators=self.class_columns,
            label=self.label_column,
            id=self.id_column,
            weight=self.weight_column,
            classes=self._classes(),
            combine=self.combine,
            separator=self.separator,
            categorical=categorical,
            ignore=self.ignore,
            empty=self.empty,
            **more,
        )

    def _classes(self) -> tuple[str, ...] | None:
        if self.classes_file is None:
            return self.classes or None
        if self.classes:
            raise ConfigError(f"{self.name}: give classes or classes-file, not both")
        try:
            lines = self.classes_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.name}: {self.classes_file} cannot be read: {error}") from None
        return tuple(line.strip() for line in lines if line.strip())


@attrs.frozen(kw_only=True)
class Table(LabelledTable):
    """A table whose other columns are features."""

    categorical: tuple[str, ...] = param((), help="columns of numbers that are categories")
    hashed: tuple[str, ...] = param((), help="columns of text whose words become features, such as remarks")
    dates: str = param("day-first", help="how 3/4/2024 is read", choices=("day-first", "month-first"))

    def load(self, data_dir: Path) -> Data:
        """Read the table."""
        from wsl_toolkit.data.formats import table_files

        layout = self.layout(categorical=self.categorical, hashed=self.hashed, month_first=self.dates == "month-first")
        return table_files.read(locate(self.file, data_dir), layout, self.given)

    def write(self, data: Data, data_dir: Path) -> None:
        """Write a table that reads back as the same data."""
        from wsl_toolkit.data.formats import table_writing

        delimiter = None if self.given is None else self.given.delimiter
        table_writing.write(data, self.file, delimiter, self.categorical, self.weight_column)

    @property
    def file(self) -> Path:
        """The file."""
        raise NotImplementedError

    @property
    def given(self) -> Given | None:
        """What the user says about a text file."""
        return None


@attrs.frozen(kw_only=True)
class Csv(Table):
    """A CSV or TSV table: features, and candidate sets as a|b, a JSON list, or 0/1 columns.

    Numbers are features as they are, text is a category, a date gives its year, month and day of the week, and empty
    cells are missing values. With no option, columns
    named candidates (or complementary, or class:<name>), label and id are what their names say.
    """

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    path: Path = param(help="the .csv or .tsv file, from here or below the data directory")
    delimiter: str | None = param(None, help="what separates values [default: as it looks]")
    encoding: str | None = param(None, help="the text's encoding [default: as it looks: Unicode, or else cp1252]")
    decimal: str | None = param(None, help="the decimal sign, . or , [default: as it looks]")

    @property
    def file(self) -> Path:
        """The file."""
        return self.path

    @property
    def given(self) -> Given:
        """What the user says about the file."""
        from wsl_toolkit.data.formats.text_dialect import Given

        return Given(delimiter=self.delimiter, encoding=self.encoding, decimal=self.decimal)


@attrs.frozen(kw_only=True)
class Parquet(Table):
    """A Parquet table: features, and candidate sets as lists, a|b, a JSON list, or 0/1 columns."""

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    path: Path = param(help="the .parquet file, from here or below the data directory")

    @property
    def file(self) -> Path:
        """The file."""
        return self.path


@attrs.frozen(kw_only=True)
class Xlsx(Table):
    """A sheet of an .xlsx workbook: features, and candidate sets as in a CSV table; needs openpyxl.

    Numbers are numbers whatever way they are shown, formulas are what they last came to, and rows with nothing in them
    are left out.
    """

    name: ClassVar[str] = "xlsx"
    suffixes: ClassVar[tuple[str, ...]] = (".xlsx",)

    path: Path = param(help="the .xlsx file, from here or below the data directory")
    sheet: str | None = param(None, help="which sheet [default: the first]")

    @property
    def file(self) -> Path:
        """The file."""
        return self.path

    @property
    def given(self) -> Given:
        """What the user says about the file."""
        from wsl_toolkit.data.formats.text_dialect import Given

        return Given(sheet=self.sheet)

    def write(self, data: Data, data_dir: Path) -> None:
        """Refuse: workbooks are read, not written."""
        raise ConfigError(f"{self.path.name}: workbooks are read, not written: use csv or parquet")


@attrs.frozen(kw_only=True)
class OpenMl(Dataset):
    """A table of openml.org with true labels, such as those of the UCI repository: by its id, or its title.

    It is downloaded once, by scikit-learn, and kept in the folder openml of the data directory.
    """

    name: ClassVar[str] = "openml"
    citation: ClassVar[str] = "Vanschoren, van Rijn, Bischl, Torgo (SIGKDD Explorations 2013)"

    id: int | None = param(None, help="the table's number at openml.org, such as 61 for iris", ge=1)
    title: str | None = param(None, help="the table's title there, instead of its number")
    version: int | None = param(None, help="which version of a title [default: the active one]", ge=1)
    target: str | None = param(None, help="the column of true labels [default: the one that openml.org names]")

    def load(self, data_dir: Path) -> Data:
        """Read the table, from what was downloaded before or from the network."""
        from wsl_toolkit.data.formats import openml_tables

        return openml_tables.read(self.id, self.title, self.version, self.target, data_dir)


@attrs.frozen(kw_only=True)
class ImageFolder(LabelledTable):
    """A folder of images: a folder for each class, or a table of candidate sets that names each image by its file.

    With a labels.csv in it (or another table, given as labels) its candidate sets are read; otherwise its subfolders
    are the classes, or, if there is a subfolder train whose subfolders are the classes, that is the training part and
    test, beside it, the official test part. Images are decoded once, resized to squares, and kept as bytes in a cache.
    """

    name: ClassVar[str] = "image-folder"
    suffixes: ClassVar[tuple[str, ...]] = ("/",)

    path: Path = param(help="the folder, from here or below the data directory")
    labels: Path | None = param(None, help="a table of candidate sets [default: labels.csv in the folder, if any]")
    file_column: str = param("file", help="column of the images' names below the folder")
    size: int = param(32, help="images are resized to this many pixels a side", ge=1)
    grey: bool = param(False, help="one channel instead of three")
    cache: Path | None = param(None, help="where decoded images are kept [default: $WSL_CACHE_DIR or the user's cache]")

    every_byte: bool = param(False, help="know images again by all of their bytes, not by a sample of each file")

    def load(self, data_dir: Path) -> Data:
        """Read the images, with the sets of a table or the classes of their folders."""
        from wsl_toolkit.data.formats import images

        folder = locate(self.path, data_dir, folder=True)
        decoder = images.Decoder(
            size=self.size, channels=1 if self.grey else 3, cache=self.cache, every_byte=self.every_byte
        )
        labels = self.labels or folder / images.LABELS
        if self.labels is None and not labels.is_file():
            return images.read_class_folders(folder, decoder)
        return images.read_folder(folder, labels, self.layout(), self.file_column, decoder)
