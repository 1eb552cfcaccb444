"""``--server`` and what goes with it: the same options, by kubectl's names, in every command that
asks a replica.
"""

import argparse

import pytest

from extender.cli.main import new_parser
from extender.cli.terminal.replica_access import ReplicaAccess, add_replica_options, replica_of

ASKING = {"plan": (), "explain": ("t/a",), "top": (), "record": ("-o", "x"), "doctor": ()}


def access(*arguments: str) -> ReplicaAccess:
    parser = argparse.ArgumentParser()
    add_replica_options(parser)
    return replica_of(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        pytest.param("http://127.0.0.1:10261/", "http://127.0.0.1:10261", id="a slash at its end"),
        pytest.param("https://x/prefix/", "https://x/prefix", id="below another server's path"),
        pytest.param("localhost:10261", "http://localhost:10261", id="http where it does not say"),
    ],
)
def test_a_server_is_taken_as_kubectl_takes_one(given: str, url: str):
    assert access("--server", given) == ReplicaAccess(url)


@pytest.mark.parametrize("given", ["ftp://x", "http://", "http://x:port", "http://x/?pool=a", ""])
def test_what_is_no_url_is_usage(given: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        access("--server", given)
    assert ended.value.code == 2
    assert "is not a URL such as http://127.0.0.1:10261" in capsys.readouterr().err


@pytest.mark.parametrize("command", ASKING)
def test_every_command_that_asks_a_replica_has_the_same_options(command: str):
    words = [command, *ASKING[command], "--server", "https://x", "--certificate-authority", "ca"]
    options = new_parser().parse_args(
        [*words, "--client-certificate", "crt", "--client-key", "key"]
    )
    assert replica_of(options) == ReplicaAccess("https://x", "ca", "crt", "key")
