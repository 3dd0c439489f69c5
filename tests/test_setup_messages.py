"""What a person reads when the set-up can't go on: one sentence, one command, no traceback."""

import os

import pytest

from kvcourse import __main__ as command_line
from kvcourse.setup import SetupError, call, pip_errors, platforms


def refused(function, *args, **options):
    with pytest.raises(SetupError) as error:
        function(*args, **options)
    return error.value


@pytest.mark.parametrize("version", [(3, 7), (3, 10, 13)])
def test_an_old_python_is_refused_with_the_newer_one_that_is_here(version):
    error = refused(platforms.refuse_old_python, version, runs=lambda name: name == "python3.12")
    assert f"Python 3.{version[1]}, " in error.sentence and "3.11 or newer" in error.sentence
    assert error.command.startswith("python3.12 -m kvcourse lab")
    error = refused(platforms.refuse_old_python, version, runs=lambda name: False)
    assert "python3" not in error.command and "environment.yml" in error.command


@pytest.mark.parametrize("version", [(3, 11), (3, 13, 0), (4, 0)])
def test_newer_pythons_pass(version):
    platforms.refuse_old_python(version, runs=lambda name: pytest.fail("nothing to look for"))


def test_a_program_that_exists_but_does_not_start_is_not_advised(tmp_path, monkeypatch):
    if os.name == "nt":
        pytest.skip("needs a shell script on the PATH")
    stub = tmp_path / "python3.13"
    stub.write_text("#!/bin/sh\nexit 127\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not platforms._runs("python3.13") and not platforms._runs("python3.12")


@pytest.mark.parametrize("system, machine, ok", [("darwin", "x86_64", False), ("darwin", "arm64", True)])
def test_only_intel_macs_are_refused(system, machine, ok):
    if ok:
        platforms.refuse_intel_mac(system, machine)
    else:
        error = refused(platforms.refuse_intel_mac, system, machine)
        assert "Intel" in error.sentence and "docker run" in error.command
    platforms.refuse_intel_mac("linux", "x86_64")


@pytest.mark.parametrize("missing", ["ensurepip", "venv"])
def test_a_python_without_venv_names_the_package_to_install(missing):
    error = refused(platforms.refuse_missing_venv, find=lambda name: name != missing)
    assert "ensurepip" in error.sentence and error.command.startswith("sudo apt-get install python3.")
    platforms.refuse_missing_venv(find=lambda name: True)


def test_a_full_disk_is_named_in_numbers(tmp_path):
    error = refused(platforms.refuse_full_disk, str(tmp_path), 2500, free=120)
    assert f"needs 2500 MB in {tmp_path}, 120 free" in error.sentence
    platforms.refuse_full_disk(str(tmp_path), 2500, free=2500)
    refused(platforms.refuse_full_disk, str(tmp_path / "not" / "yet" / "there"), 10**9)  # asks the nearest folder


RETRY = (
    "WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'NewConnectionError("
    "Failed to establish a new connection: [Errno 111] Connection refused')': /simple/ruff/\n"
)


@pytest.mark.parametrize(
    "log, words, command",
    [
        (RETRY + "ERROR: No matching distribution found for ruff>=0.17", ["index can't be reached", "network"], "lab"),
        ("ERROR: Could not find a version that satisfies the requirement gguf>=0.19 (from versions: none)\n"
         "ERROR: No matching distribution found for gguf>=0.19", ["gguf>=0.19", "can't be reached"], "lab"),
        ("ERROR: Could not find a version that satisfies the requirement gguf==0.19.0 (from versions: 0.17.1, 0.18.0)\n"
         "ERROR: No matching distribution found for gguf==0.19.0", ["mirror", "lacks gguf==0.19.0"], "index-url"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
         ["damaged", "thrown away"], "purge"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
         ["disk is full"], "lab"),
        ("ERROR: ResolutionImpossible: for help visit", ["contradict the lock"], "pip config list"),
        ("urllib3 SSLError(SSLCertVerificationError(1, 'CERTIFICATE_VERIFY_FAILED", ["certificate"], "global.cert"),
        ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'", ["write"], "lab"),
        ("something\nERROR: a thing nobody foresaw\nnotice", ["a thing nobody foresaw", "kvcourse-pip.log"], "lab"),
        ("", ["no reason"], "lab"),
    ],
)  # fmt: skip
def test_pip_failures_become_one_sentence_and_one_command(log, words, command):
    sentence, line = pip_errors.explain(log)
    assert all(word in sentence for word in words), sentence
    assert command in line and "\n" not in sentence + line


def test_an_index_without_a_build_for_this_python_says_which_python():
    sentence, _ = pip_errors.explain("No matching distribution found for torch\n(from versions: none)", python="Q 9.9")
    assert "torch for Q 9.9" in sentence


@pytest.mark.parametrize("system, start", [("win32", "py -m kvcourse"), ("linux", "python3 -m kvcourse")])
def test_commands_are_spelled_as_on_this_system(monkeypatch, system, start):
    monkeypatch.setattr("sys.platform", system)
    assert call("lab") == start + " lab"


def test_the_command_line_prints_the_sentence_and_the_command_and_ends_with_1(monkeypatch, capsys):
    def old():
        raise SetupError("this can't be.", "do that")

    monkeypatch.setattr(command_line, "refuse_old_python", old)
    assert command_line.main(["lab"]) == 1
    shown = capsys.readouterr()
    assert shown.err == "\nkvcourse: this can't be.\n    do that\n" and shown.out == ""


def test_options_of_ours_are_read_and_others_are_handed_on():
    options, rest = command_line.parser().parse_known_args(["lab", "--prepare-only", "--no-browser", "--port", "8900"])
    assert options.prepare_only and rest == ["--no-browser", "--port", "8900"]
    options, rest = command_line.parser().parse_known_args(["test", "tests/test_lock.py", "-x", "--fast"])
    assert options.fast and rest == ["tests/test_lock.py", "-x"]
    options, rest = command_line.parser().parse_known_args(["model", "--from", "x.whl"])
    assert options.source == "x.whl" and not rest
    with pytest.raises(SystemExit):
        command_line.main(["doctor", "--no-such-option"])
