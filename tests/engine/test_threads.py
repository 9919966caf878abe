"""Idle threads do not take a busy machine's cores."""

from __future__ import annotations

import os

import pytest

from wsl_toolkit.threads import SPINS, wait_politely


def test_idle_threads_sleep_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    wait_politely()

    assert os.environ["GOMP_SPINCOUNT"] == SPINS


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "7")])
def test_the_users_own_setting_counts(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:

    for each in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(each, "")
        monkeypatch.delenv(each)
    monkeypatch.setenv(name, value)
    before = dict(os.environ)
    wait_politely()
    assert dict(os.environ) == before
