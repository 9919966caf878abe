"""Loading one by one: slow plugins are named while one waits, and an API version is read before code runs."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from wsl_toolkit.errors import PluginError
from wsl_toolkit.hookspecs import PROJECT
from wsl_toolkit.plugins import api_version, loading
from wsl_toolkit.version import API_VERSION


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package whose import, and whose submodule's, would be noticed."""
    root = tmp_path / "wsl_noticed"
    (root / "inner").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (root / "inner" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.startswith("wsl_noticed")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('WSL_API = "1.0"\n', "1.0"),
        ("import x\n\nWSL_API: str = '3.1'  # later\n", "3.1"),
        ('WSL_API = "1" + ".0"\n', None),
        ('    WSL_API = "1.0"\n', None),
        ("", None),
    ],
)
def test_the_api_version_is_read_off_the_source_without_importing_it(
    package: Path, source: str, found: str | None
) -> None:
    (package / "inner" / "plugin.py").write_text(source + "raise RuntimeError('imported')\n")
    assert api_version.stated_in_source("wsl_noticed.inner.plugin") == found
    assert "wsl_noticed" not in sys.modules


@pytest.mark.parametrize("module", ["wsl_absent", "wsl_noticed.absent", "sys", "wsl_noticed.inner.absent"])
def test_a_module_whose_source_cannot_be_found_states_nothing(package: Path, module: str) -> None:
    assert api_version.stated_in_source(module) is None


def test_a_source_that_is_not_text_states_nothing(package: Path) -> None:
    (package / "plugin.py").write_bytes(b"\xff\xfe\x00WSL_API")
    assert api_version.stated_in_source("wsl_noticed.plugin") is None


@pytest.mark.parametrize("version", [None, api_version.current(), f"{API_VERSION[0]}.0"])
def test_what_this_toolkit_offers_is_accepted(version: str | None) -> None:
    api_version.check(version)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (f"{API_VERSION[0]}.{API_VERSION[1] + 1}", "upgrade wsl-toolkit"),
        (f"{API_VERSION[0] + 1}.0", "upgrade wsl-toolkit"),
        (f"{API_VERSION[0] - 1}.9", "install a newer version of the plugin"),
        ("1", "write it as MAJOR.MINOR"),
        ("", "write it as MAJOR.MINOR"),
    ],
)
def test_another_api_is_refused_with_what_to_do(version: str, advice: str) -> None:
    with pytest.raises(PluginError, match=advice):
        api_version.check(version)


def test_a_version_that_is_no_text_is_refused() -> None:
    class Plugin:
        WSL_API = 1.0

    with pytest.raises(PluginError, match="write it as text"):
        api_version.stated(Plugin)


def test_whoever_waits_for_a_plugin_is_told_which(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0.02)
    (package / "__init__.py").write_text("import time\ntime.sleep(0.5)\n")
    loading.load([EntryPoint(name="slow", value="wsl_noticed", group=PROJECT)])
    assert "still waiting for plugin 'slow' of unknown" in capsys.readouterr().err


def test_a_plugin_may_be_an_object_in_a_module(package: Path) -> None:
    (package / "__init__.py").write_text(
        "from wsl_toolkit import hookimpl\n"
        "class Plugin:\n"
        "    WSL_API = '1.0'\n"
        "    @hookimpl\n"
        "    def wsl_register_backbones(self):\n"
        "        return []\n"
        "plugin = Plugin()\n"
    )
    (record,) = loading.load([EntryPoint(name="object", value="wsl_noticed:plugin", group=PROJECT)]).records
    assert record.status == "ok"
    assert record.warnings == ()


def test_one_module_behind_two_entry_points_is_loaded_once(package: Path) -> None:
    (package / "__init__.py").write_text(
        "from wsl_toolkit import hookimpl\nWSL_API = '1.0'\n@hookimpl\ndef wsl_register_backbones():\n    return []\n"
    )
    entry_points = [EntryPoint(name=name, value="wsl_noticed", group=PROJECT) for name in ("a", "b")]
    first, second = loading.load(entry_points).records
    assert first.status == "ok"
    assert second.failure is not None
    assert "already" in second.failure
