"""The containers, the unit of systemd and the configuration of nginx agree with the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from commandline import CommandLine

from nmt.cli import app
from nmt.server.http import SHUTDOWN_TIMEOUT
from nmt.server.limits import Limits

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "scripts" / "container"
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
PORT = "5000"


def instructions(name: str, keyword: str) -> list[str]:
    """Return what follows a keyword in a Dockerfile."""
    text = (CONTAINERS / f"{name}.Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    return re.findall(rf"^{keyword} (.*)", text, re.MULTILINE)


def block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert match
    return match[1]


def assert_options_exist(arguments: list[str]) -> None:
    command = typer.main.get_command(app).get_command(None, "serve")
    options = {name for parameter in command.params for name in parameter.opts}
    assert [word for word in arguments if word.startswith("--") and word not in options] == []


@pytest.mark.slow
def test_the_image_of_the_server_starts_and_its_health_check_works(tmp_path: Path) -> None:
    [entrypoint] = map(json.loads, instructions("serve", "ENTRYPOINT"))
    [health_check] = instructions("serve", "HEALTHCHECK")
    program, *arguments = json.loads(health_check[health_check.index("CMD ") + 4 :])
    assert (entrypoint[0], program) == ("nmt", "python")
    assert instructions("serve", "EXPOSE") == [PORT] == [entrypoint[-1]]
    process = CommandLine(tmp_path).start(*entrypoint[1:-1], "0", "--model", "en-de")
    try:
        for line in iter(process.stderr.readline, b""):
            if match := re.search(rb"listening on http://0\.0\.0\.0:(\d+);", line):
                break
        port = match[1].decode()
        check = [word.replace(f":{PORT}/", f":{port}/") for word in arguments]
        subprocess.run([sys.executable, *check], check=True, timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert subprocess.run([sys.executable, *check], capture_output=True).returncode != 0


def test_the_images_contain_what_they_are_built_from() -> None:
    for name in ("serve", "train"):
        ignored = (CONTAINERS / f"{name}.Dockerfile.dockerignore").read_text(encoding="utf-8")
        kept = [line[1:] for line in ignored.splitlines() if line.startswith("!")]
        assert all(list(ROOT.glob(pattern)) for pattern in kept)
        for sources in instructions(name, "COPY"):
            first = sources.split()[0]
            assert first == "." or first.startswith("--from=") or first in kept
        assert instructions(name, "USER") == (["10001"] if name == "serve" else [])
    [scripts] = [line for line in instructions("serve", "RUN") if "/source/" in line]
    path = re.search(r"/source/(\S+)", scripts)[1]
    assert path == "scripts/build_dists.sh"


def test_the_script_that_tries_the_image_needs_a_container_engine() -> None:
    script = CONTAINERS / "check.sh"
    environment = os.environ | {"ENGINE": "no-such-engine"}
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("check: error: there is no command no-such-engine\nhint: ")


def test_the_services_have_options_of_the_server_and_enough_time_to_stop() -> None:
    compose = yaml.safe_load((CONTAINERS / "compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["nmt"]
    assert (CONTAINERS / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert_options_exist(service["command"])
    assert int(service["stop_grace_period"].removesuffix("s")) > SHUTDOWN_TIMEOUT
    unit = block("ini")
    arguments = re.search(r"^ExecStart=\S+/nmt serve (.*)", unit, re.MULTILINE)[1].split()
    assert arguments[:2] == ["--port", PORT]
    assert_options_exist(arguments)
    assert int(re.search(r"^TimeoutStopSec=(\d+)", unit, re.MULTILINE)[1]) > SHUTDOWN_TIMEOUT


def test_the_proxy_passes_on_what_the_server_needs() -> None:
    proxy = block("nginx")
    assert f"proxy_pass http://127.0.0.1:{PORT};" in proxy
    assert f"client_max_body_size {Limits.max_body // 10**6}m;" in proxy
    for header in ("Host $http_host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto $scheme"):
        assert f"proxy_set_header {header};" in proxy
    assert proxy.count("{") == proxy.count("}")
