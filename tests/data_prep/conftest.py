"""Fixtures for the tests of the data preparation: small texts, the scripts and a web server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shared_data() -> Path:
    """Folder with real data beside the checkout, if there is one."""
    if not SHARED.is_dir():
        pytest.skip("no real data beside the checkout (../shared/data)")
    return SHARED


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run one of the preparation scripts from a folder outside the checkout."""

    def run(name: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"no_proxy": "*", **variables}
        return subprocess.run(
            ["bash", str(ROOT / "data_prep" / name), *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


@pytest.fixture
def python() -> str:
    """The Python that runs the tests, which the scripts use too."""
    return sys.executable


@dataclass
class Site:
    """The server's files, its simulated failures, and the requests that it received."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    length: bool = True
    etag: str | None = '"one"'
    break_after: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    announced: dict[str, str] = field(default_factory=dict)  # Content-Length, where it is not true
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A local web server with optional support for ranges, which can drop connections."""
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path
            asked = self.headers.get("Range")
            state.asked.append((path, asked))
            if state.statuses.get(path):
                self.send_error(state.statuses[path].pop(0))
                return
            if path in state.redirects:
                self.send_response(302)
                self.send_header("Location", state.redirects[path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path not in state.files:
                self.send_error(404)
                return
            body, start = state.files[path], 0
            unchanged = self.headers.get("If-Range") in (None, state.etag)
            if asked and state.ranges and unchanged:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            if path in state.announced:
                self.send_header("Content-Length", state.announced[path])
            elif state.length:
                self.send_header("Content-Length", str(len(body) - start))
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            rest = body[start:]
            if state.break_after.get(path):
                rest = rest[: state.break_after[path].pop(0)]
            self.wfile.write(rest)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("no_proxy", "*")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
