"""Tokens of others in files: made at once, renewed in time, and never half of one."""

import asyncio
import random
import signal
import stat
import sys
from pathlib import Path

import pytest

from extender.kube import tokens
from extender.kube.api import Forbidden, Obj, OutcomeUnknown
from extender.kube.client import KubeApi
from extender.kube.tokens import (
    LIFETIME_S,
    LOOK_PERIOD_S,
    RETRY_PERIOD_S,
    Target,
    Tokens,
    main,
    parser,
)
from tests.e2e.waiting import NotYet, eventually
from tests.kube.apiserver import ApiServer, answer, kubeconfig, serve, status
from tests.support.clock import Clock


class Issuer:
    """Answers as it is told; the last answer stays."""

    def __init__(self, *answers: Obj | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, int]] = []

    async def token(self, namespace: str, account: str, lifetime_s: int) -> Obj:
        self.asked.append((namespace, account, lifetime_s))
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        return given


def a_token(token: object = "t", lifetime: object = 3600) -> Obj:
    return {"spec": {"expirationSeconds": lifetime}, "status": {"token": token}}


def kept(issuer: tokens.Issuer, *targets: Target) -> tuple[Tokens, Clock]:
    clock = Clock(1000.0)
    return Tokens(issuer, targets, rng=random.Random(1), monotonic=clock, now=clock), clock


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "ca.crt").write_text("authority")
    monkeypatch.setattr(tokens, "POD_FILES", pod)
    (tmp_path / "a").mkdir()
    return Target("ns", "a", tmp_path / "a")


async def test_what_a_pod_has_is_there_and_nobody_may_write_it(target: Target):
    keeper, _ = kept(Issuer(a_token("first")), target)
    await keeper.round()
    content = {path.name: path.read_text() for path in target.folder.iterdir()}
    assert content == {"token": "first", "ca.crt": "authority", "namespace": "ns"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.folder.iterdir()} == {0o440}


@pytest.mark.parametrize("granted", [600, 3600, 86400])
async def test_a_token_is_renewed_at_half_of_the_life_that_it_was_granted(
    target: Target, granted: int
):
    issuer = Issuer(a_token("old", granted), a_token("new", granted))
    keeper, clock = kept(issuer, target)
    await keeper.round()
    assert 0.45 * granted <= target.due_s - clock.now <= 0.5 * granted
    clock.now = target.due_s - 1
    assert await keeper.round() == 1
    assert (target.folder / "token").read_text() == "old"
    clock.now += 1
    await keeper.round()
    assert (target.folder / "token").read_text() == "new"
    assert issuer.asked == [("ns", "a", LIFETIME_S)] * 2


async def test_a_token_that_has_aged_while_the_machine_was_suspended_is_renewed_within_a_minute(
    target: Target,
):
    monotonic, wall = Clock(1000.0), Clock(5000.0)
    issuer = Issuer(a_token("old"), a_token("new"))
    keeper = Tokens(issuer, [target], rng=random.Random(1), monotonic=monotonic, now=wall)
    assert await keeper.round() == LOOK_PERIOD_S
    monotonic.now += LOOK_PERIOD_S
    wall.now += 7200
    await keeper.round()
    assert (target.folder / "token").read_text() == "new"
    await keeper.round()
    assert len(issuer.asked) == 2


async def test_authorities_that_change_are_copied_within_a_minute(target: Target):
    issuer = Issuer(a_token())
    keeper, clock = kept(issuer, target)
    await keeper.round()
    (tokens.POD_FILES / "ca.crt").write_text("another authority")
    clock.now += LOOK_PERIOD_S
    await keeper.round()
    copied = target.folder / "ca.crt"
    assert copied.read_text() == "another authority"
    written = copied.stat().st_ino
    await keeper.round()
    assert copied.stat().st_ino == written, "the same content is not written again"
    assert len(issuer.asked) == 1


@pytest.mark.parametrize(
    "answered",
    [
        Forbidden(403, "Forbidden", "no"),
        OutcomeUnknown(0, "Timeout", "lost"),
        {},
        {"status": {}},
        a_token(""),
        a_token(None),
        a_token("x", 0),
        a_token("x", None),
    ],
    ids=repr,
)
async def test_what_is_no_token_leaves_the_old_one_and_is_asked_again_soon(
    target: Target, answered: Obj | Exception, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    keeper, clock = kept(Issuer(a_token("old"), answered, answered, a_token("new")), target)
    await keeper.round()
    clock.now = target.due_s
    for _ in range(2):
        assert await keeper.round() == RETRY_PERIOD_S
        assert (target.folder / "token").read_text() == "old"
        clock.now += RETRY_PERIOD_S
    await keeper.round()
    assert (target.folder / "token").read_text() == "new"
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"], "told when it comes and when it has gone"


async def test_who_cannot_be_written_keeps_nobody_else_waiting(target: Target, tmp_path: Path):
    gone = Target("ns", "gone", tmp_path / "gone")
    keeper, _ = kept(Issuer(a_token()), gone, target)
    assert await keeper.round() == RETRY_PERIOD_S
    assert (target.folder / "token").exists()
    assert gone.trouble


async def test_a_reader_never_sees_half_a_token(target: Target, monkeypatch: pytest.MonkeyPatch):
    keeper, clock = kept(Issuer(a_token("old"), a_token("new" * 1000)), target)
    await keeper.round()
    clock.now = target.due_s
    seen = []
    replace = Path.replace

    def watched(self: Path, to: Path) -> Path:
        seen.append((target.folder / "token").read_text())
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", watched)
    await keeper.round()
    assert set(seen) == {"old"}
    assert [path for path in target.folder.iterdir() if path.name.startswith(".")] == []


async def test_the_program_asks_for_the_tokens_by_name_and_ends_when_it_is_told_to(tmp_path: Path):
    async def both() -> bool:
        if not all((tmp_path / name / "token").exists() for name in ("a", "b")):
            raise NotYet("not both")
        return True

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with serve(ApiServer([answer(a_token("given"))])) as server:
        file = kubeconfig(tmp_path, server.url)
        words = [f"--token=ns/{name}={tmp_path / name}" for name in ("a", "b")]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "extender.kube.tokens", f"--kubeconfig={file}", *words
        )
        try:
            await eventually(both, 15.0, "both tokens are there")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(15):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert [seen.path for seen in server.seen] == [
        f"/api/v1/namespaces/ns/serviceaccounts/{name}/token" for name in ("a", "b")
    ]
    assert server.seen[0].json["kind"] == "TokenRequest"
    assert server.seen[0].json["spec"] == {"expirationSeconds": LIFETIME_S}


async def test_a_refusal_does_not_end_it(tmp_path: Path):
    target = Target("ns", "a", tmp_path)
    async with (
        serve(ApiServer([status(403, "Forbidden"), answer(a_token("given"))])) as server,
        await KubeApi.connect(kubeconfig=kubeconfig(tmp_path, server.url)) as api,
    ):
        keeper, clock = kept(api, target)
        clock.now += await keeper.round()
        assert not (tmp_path / "token").exists()
        await keeper.round()
    assert (tmp_path / "token").read_text() == "given"


@pytest.mark.parametrize("word", ["a=/x", "/a=/x", "ns/=/x", "ns/a", "ns/a="])
def test_who_and_where_are_both_named(word: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parser().parse_args(["--token", word])
    assert "expected NAMESPACE/NAME=DIR" in capsys.readouterr().err


def test_without_a_way_to_the_api_server_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([f"--kubeconfig={tmp_path / 'none'}", f"--token=ns/a={tmp_path}"]) == 1
    assert capsys.readouterr().err.startswith("tokens: ")
