import json

import pytest

from bertflow.version import __version__


def test_doctor_tells_versions_and_encodes(run):
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)
    assert (code, found["bertflow"]) == (0, __version__)
    assert found["self-test"].startswith("ok: 256 numbers")
    assert set(found["packages"]) >= {"torch", "numpy"}
    assert "serve" in found["extras"]


def test_a_broken_installation_is_told_and_exits_with_1(run, monkeypatch):
    monkeypatch.setattr("bertflow.model.BertFlow.from_pretrained", lambda *_, **__: 1 / 0)
    code, out, _ = run("doctor", "--json")
    assert code == 1
    assert json.loads(out)["self-test"].startswith("failed: ZeroDivisionError")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version(run, option):
    assert run(option) == (0, f"bertflow {__version__}\n", "")


def test_a_config_file_gives_a_verb_its_options(run, tmp_path, sentences, tiny_bert):
    corpus, config = tmp_path / "corpus.txt", tmp_path / "run.yaml"
    corpus.write_text("\n".join(sentences))
    config.write_text(f"fit:\n  encoder: {tiny_bert}\n  recipe: whitening\n  output: {tmp_path / 'a'}\n  json: true\n")
    code, out, err = run("--config", config, "fit", corpus, "--quiet")
    assert code == 0, err
    assert json.loads(out)["recipe"] == "whitening"
    code, out, err = run("--config", config, "fit", corpus, "--quiet", "--recipe", "sn", "-o", tmp_path / "b")
    assert (code, json.loads(out)["recipe"]) == (0, "sn"), err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("fit:\n  encodr: mini\n", "fit has no option 'encodr'"),
        ("fitt:\n  encoder: mini\n", "there is no verb 'fitt'"),
        ("- a\n", "wants a section"),
        ("fit: [\n", "is not YAML"),
    ],
)
def test_a_wrong_config_file_is_a_sentence(run, tmp_path, content, message):
    config = tmp_path / "run.yaml"
    config.write_text(content)
    code, _, err = run("--config", config, "recipes")
    assert code == 1
    assert message in err


def test_no_color_is_obeyed(run, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "")
    assert "\x1b[" not in run("recipes")[1]
