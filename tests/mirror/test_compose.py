"""compose.yaml: what it refuses, what it pins, and what it opens."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from harness.pin.environments import environment, lock_for
from harness.places import places
from tests.mirror.composed import FILE, ROOT, RefusedError, services

SET = {"POSTGRES_PASSWORD": "p@ss/wörd $HOME"}


def whole() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return read


def test_it_does_not_start_without_a_password_of_ones_own() -> None:
    for variables in ({}, {"POSTGRES_PASSWORD": ""}):
        with pytest.raises(RefusedError, match=r"POSTGRES_PASSWORD: set it in \.env"):
            services(variables)
    started = services(SET)
    assert started["database"]["environment"]["POSTGRES_PASSWORD"] == SET["POSTGRES_PASSWORD"]
    assert started["server"]["environment"]["PGPASSWORD"] == SET["POSTGRES_PASSWORD"]


def test_no_secret_has_a_default_or_is_on_a_command_line() -> None:
    for name, service in whole()["services"].items():
        for key, value in service["environment"].items():
            if re.search("PASS|SECRET", key):
                assert re.fullmatch(r"\$\{\w+(:\?[^}]+|:-)\}", value), f"{name}: {key}"
    for name, service in services(SET).items():
        words = str({key: value for key, value in service.items() if key != "environment"})
        assert SET["POSTGRES_PASSWORD"] not in words, name


def test_every_image_is_pinned_or_built_here() -> None:
    lock = lock_for(environment("server", places()), "3.11", places())
    (mlflow,) = (pin.version for pin in lock.pins if pin.name == "mlflow")
    for service in whole()["services"].values():
        if "build" in service:
            stages = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
            assert service["build"]["target"] in stages
            assert service["pull_policy"] == "build"
            assert service["image"].endswith(f":{mlflow}")
        else:
            assert re.fullmatch(r"[\w./-]+:\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])


def test_the_server_speaks_the_harnesses_mlflow() -> None:
    """One MLflow on both sides, under each Python: a client and a server of different versions need not agree."""
    server, harness = (environment(name, places()) for name in ("server", "harness"))
    for version in server.python:
        known = {pin.name: pin.version for pin in lock_for(harness, version, places()).pins}
        pinned = {pin.name: pin.version for pin in lock_for(server, version, places()).pins}
        assert {name: pinned[name] for name in pinned if name in known} == {n: known[n] for n in pinned if n in known}
        assert pinned.keys() - known.keys() == {"flask-wtf", "psycopg2-binary", "wtforms"}


def test_only_this_machine_reaches_it_unless_asked_and_nobody_the_database() -> None:
    assert services(SET)["server"]["ports"] == ["127.0.0.1:5000:5000"]
    assert services({**SET, "MLFLOW_BIND": "0.0.0.0", "MLFLOW_PORT": "80"})["server"]["ports"] == ["0.0.0.0:80:5000"]
    assert "ports" not in services(SET)["database"]


def test_what_the_shell_in_the_container_fills_in_is_left_to_it() -> None:
    (script,) = services(SET)["server"]["command"]
    assert script.endswith(" ${MLFLOW_AUTH:+--app-name basic-auth}")
    assert services(SET)["server"]["environment"]["MLFLOW_AUTH"] == ""


def test_each_service_comes_back_and_says_how_it_is() -> None:
    for name, service in whole()["services"].items():
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name
    assert whole()["services"]["server"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert set(whole()["volumes"]) == {v.partition(":")[0] for s in whole()["services"].values() for v in s["volumes"]}
