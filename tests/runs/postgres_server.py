"""Debian's PostgreSQL as a cluster of the test's own, in a temporary directory, and nobody else's."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.waiting import until

PASSWORD = "not-a-secret"


def binary(name: str) -> str:
    """Where one of PostgreSQL's programs is: Debian keeps the server's out of PATH."""
    found = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True))]
    assert any(found), f"PostgreSQL's {name} is needed: run .ci/install-system"
    return next(path for path in found if path)


class Postgres:
    """A database server on 127.0.0.1; it refuses to run as root, so root hands it to the user `postgres`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix="wsl-postgres-"))
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            for path in (self.folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        data = str(self.folder / "data")
        made = [binary("initdb"), "-D", data, "-U", "wsl", "--pwfile", str(secret), "--auth", "scram-sha-256"]
        subprocess.run([*made, "--no-sync", "-E", "UTF8"], check=True, capture_output=True, cwd="/", **self._as)
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder), "fsync": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(
            [binary("postgres"), "-D", data, "-p", str(port), *options],
            stdout=self.log, stderr=self.log, cwd="/", **self._as,
        )  # fmt: skip
        until(self._answers, "PostgreSQL does not answer")
        self.query("create database wsl", database="postgres")

    @property
    def uri(self) -> str:
        """The database as SQLAlchemy writes it."""
        return f"postgresql+psycopg2://wsl:{PASSWORD}@127.0.0.1:{self.port}/wsl"

    def _connect(self, database: str) -> Any:
        import psycopg2

        return psycopg2.connect(host="127.0.0.1", port=self.port, user="wsl", password=PASSWORD, dbname=database)

    def _answers(self) -> bool:
        import psycopg2

        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            self._connect("postgres").close()
        except psycopg2.OperationalError:
            return False
        return True

    def query(self, text: str, database: str = "wsl") -> list[Any]:
        """Ask the database itself."""
        connection = self._connect(database)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(text)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def stop(self) -> None:
        """End the server at once, and remove what it kept."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
