"""Pages opened in a headless Chromium, which writes down what it logs and what it requests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OWN_HOSTS = re.compile(r"^https?://[^/]*\.(?:google|googleapis|gvt1)\.com/")
"""The browser's own requests, for updates, which its flags do not turn off."""


def chromium() -> str | None:
    """The path of a Chromium, if one is installed."""
    paths = (shutil.which(program) for program in _PROGRAMS)
    return next((path for path in paths if path is not None), None)


@dataclass(frozen=True)
class Opened:
    """A page that was opened.

    Attributes:
        dom: the page after its scripts have run.
        console: the lines that the page, or the browser about it, has written to the console.
        requests: the addresses that the page has requested from the network.
    """

    dom: str
    console: list[str]
    requests: list[str]


def open_page(page: Path, *, profile: Path) -> Opened:
    """Open a page, without a network; ``profile`` is an empty folder for the browser."""
    program = chromium()
    assert program is not None
    log = profile / "requests.json"
    done = subprocess.run(
        [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
            *("--enable-logging=stderr", f"--log-net-log={log}", "--virtual-time-budget=3000"),
            *("--dump-dom", page.resolve().as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    urls = {event.get("params", {}).get("url", "") for event in events}
    requests = sorted(url for url in urls if url.startswith(("http:", "https:", "ws:", "wss:")))
    return Opened(
        dom=done.stdout,
        console=console,
        requests=[url for url in requests if not _OWN_HOSTS.match(url)],
    )
