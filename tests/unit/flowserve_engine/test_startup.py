"""What a process is given, and how it says that this can never work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowserve import process
from flowserve.epoch import Refused, supersedes
from flowserve.process import Unusable, read_config
from flowserve.source import model_directory
from flowserve.wire import Routes, ShellConfig

CONFIG = {"instance": "i", "role": "Decode"}


def test_a_configuration_comes_from_a_file_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "instance": "file"}))
    monkeypatch.setenv(process.CONFIG_VARIABLE, json.dumps(CONFIG))
    assert read_config(ShellConfig, []).instance == "i"
    assert read_config(ShellConfig, ["--config", str(file)]).instance == "file"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither"),
        ("{", "JSON"),
        ('{"instance": "i"}', "role: Field required"),
        ('{"instance": "i", "role": "Decode", "colour": "red"}', "colour"),
        ('{"instance": "i", "role": "Decode", "heartbeat_seconds": 0}', "heartbeat_seconds"),
    ],
)
def test_a_bad_configuration_is_named(monkeypatch: pytest.MonkeyPatch, text: str, problem: str) -> None:
    monkeypatch.setenv(process.CONFIG_VARIABLE, text)
    with pytest.raises(Unusable, match=problem) as unusable:
        read_config(ShellConfig, [])
    assert unusable.value.reason == "BadConfig"


def test_values_of_a_bad_configuration_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process.CONFIG_VARIABLE, '{"instance": "i", "role": "secret-value"}')
    with pytest.raises(Unusable) as unusable:
        read_config(ShellConfig, [])
    assert "secret-value" not in str(unusable.value)


def test_without_a_token_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process.TOKEN_VARIABLE, raising=False)
    with pytest.raises(Unusable, match=process.TOKEN_VARIABLE):
        process.control_token()


def test_unusable_is_status_78_and_one_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise Unusable("CheckpointDamaged", "two\nlines")

    with pytest.raises(SystemExit) as exit_:
        process.run(main)
    assert exit_.value.code == 78
    assert capsys.readouterr().err == "xdeepserve: CheckpointDamaged: two lines\n"


def test_models_stand_for_the_directory_that_this_machine_keeps_them_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.setenv("XDEEPSERVE_MODELS_DIR", str(tmp_path))
    assert model_directory("file:///models/tiny") == tmp_path / "tiny"
    assert model_directory((tmp_path / "tiny").as_uri()) == tmp_path / "tiny"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("https://example.org/models/tiny", "BadConfig"),
        ("file://other-host/models/tiny", "BadConfig"),
        ("file:models/tiny", "BadConfig"),
        ("file:///models/../etc", "BadConfig"),
        ("file:///models/%2e%2e/etc", "BadConfig"),
        ("file:///models/tiny?x=1", "BadConfig"),
        ("file:///models/a%00b", "BadConfig"),
        ("file://[", "BadConfig"),
        ("file:///models/absent", "CheckpointMissing"),
    ],
)
def test_what_is_no_model_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, reason: str
) -> None:
    monkeypatch.setenv("XDEEPSERVE_MODELS_DIR", str(tmp_path))
    with pytest.raises(Unusable) as unusable:
        model_directory(uri)
    assert unusable.value.reason == reason


def test_documents_are_followed_in_the_order_of_their_epochs() -> None:
    def routes(epoch: int, deployment: str = "d") -> Routes:
        return Routes(deployment=deployment, epoch=epoch, targets=())

    assert supersedes(routes(1), None)
    assert supersedes(routes(3), routes(1))
    assert not supersedes(routes(3), routes(3))
    with pytest.raises(Refused, match="older"):
        supersedes(routes(2), routes(3))
    with pytest.raises(Refused, match="other content"):
        supersedes(routes(3, "other"), routes(3))
