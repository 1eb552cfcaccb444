"""Whether we choose the proxy that Go's programs beside us choose: the table of golang.org/x/net
v0.57.0, and what is ours.
"""

from pathlib import Path

import pytest

from extender.kube.api import ConnectError
from extender.kube.connection import open_connection
from extender.kube.proxy import ProxySettings, proxy_for
from tests.kube.apiserver import kubeconfig

HTTP, HTTPS = "http://example.com/", "https://secure.tld/"


@pytest.mark.parametrize(
    ("settings", "request_url", "expected"),
    [
        (ProxySettings(http="127.0.0.1:8080"), HTTP, "http://127.0.0.1:8080"),
        (
            ProxySettings(http="cache.corp.example.com:1234"),
            HTTP,
            "http://cache.corp.example.com:1234",
        ),
        (ProxySettings(http="cache.corp.example.com"), HTTP, "http://cache.corp.example.com"),
        (ProxySettings(http="localhost"), HTTP, "http://localhost"),
        (
            ProxySettings(http="https://cache.corp.example.com"),
            HTTP,
            "https://cache.corp.example.com",
        ),
        (ProxySettings(http="http://127.0.0.1:8080"), HTTP, "http://127.0.0.1:8080"),
        (ProxySettings(http="https://127.0.0.1:8080"), HTTP, "https://127.0.0.1:8080"),
        (ProxySettings(http="socks5://127.0.0.1"), HTTP, "socks5://127.0.0.1"),
        (ProxySettings(http="foo://host"), HTTP, "foo://host"),
        (
            ProxySettings(http="http.proxy.tld", https="secure.proxy.tld"),
            "http://insecure.tld/",
            "http://http.proxy.tld",
        ),
        (
            ProxySettings(http="http.proxy.tld", https="secure.proxy.tld"),
            HTTPS,
            "http://secure.proxy.tld",
        ),
        (
            ProxySettings(http="http.proxy.tld", https="https://secure.proxy.tld"),
            HTTPS,
            "https://secure.proxy.tld",
        ),
        (ProxySettings(http="http.proxy.tld"), HTTPS, None),
        (ProxySettings(http="http.proxy.tld"), "ftp://insecure.tld/", None),
        (
            ProxySettings(https="https://secure.proxy.tld", cgi=True),
            HTTPS,
            "https://secure.proxy.tld",
        ),
        (ProxySettings(), HTTP, None),
        (ProxySettings(no_proxy="example.com", http="proxy"), HTTP, None),
        (ProxySettings(no_proxy=".example.com", http="proxy"), HTTP, "http://proxy"),
        (ProxySettings(no_proxy="ample.com", http="proxy"), HTTP, "http://proxy"),
        (ProxySettings(no_proxy="example.com", http="proxy"), "http://foo.example.com/", None),
        (ProxySettings(no_proxy=".foo.com", http="proxy"), HTTP, "http://proxy"),
        (ProxySettings(no_proxy=".示例.com", http="proxy"), "http://www.示例.com", None),
        (ProxySettings(no_proxy="xn--fsq092h.com", http="proxy"), "http://www.示例.com", None),
        (ProxySettings(no_proxy="示例.com", http="proxy"), "http://www.xn--fsq092h.com", None),
        (
            ProxySettings(no_proxy="example.com", http="proxy"),
            "http://[1000::%25.example.com]:123",
            "http://proxy",
        ),
    ],
)
def test_the_proxy_of_a_request_is_the_one_that_go_takes(
    settings: ProxySettings, request_url: str, expected: str | None
):
    assert settings.url_for(request_url) == expected


def test_the_proxy_that_a_cgi_programs_caller_may_have_set_is_refused():
    with pytest.raises(ConnectError, match="CGI"):
        ProxySettings(http="http://10.1.2.3:8080", cgi=True).url_for(HTTP)


NO_PROXY = (
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, "
    "10.0.0.0/30, "
    "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64"
)
HOSTS = {
    "localhost": False,
    "127.0.0.1": False,
    "127.0.0.2": False,
    "::1": False,
    "::2": True,
    "192.168.1.1": False,
    "192.168.1.2": True,
    "192.168.1.3": False,
    "192.168.1.4": True,
    "10.0.0.2": False,
    "2001:db8::52:0:1": False,
    "2001:db8::52:0:2": True,
    "2001:db8::52:0:3": False,
    "2002:db8:a::123": False,
    "fe80::424b:c8be:1643:a1b6": True,
    "barbaz.net": True,
    "www.barbaz.net": False,
    "foobar.com": False,
    "www.foobar.com": False,
    "foofoobar.com": True,
    "baz.com": True,
    "localhost.net": True,
    "local.localhost": True,
    "barbarbaz.net": True,
    "wildcard.io": True,
    "nested.wildcard.io": False,
    "awildcard.io": True,
}


@pytest.mark.parametrize(("host", "by_proxy"), HOSTS.items())
def test_a_host_is_left_out_as_go_leaves_it_out(host: str, by_proxy: bool):
    assert ProxySettings(no_proxy=NO_PROXY).uses_proxy(host, 80) is by_proxy


@pytest.mark.parametrize("host", HOSTS)
def test_a_star_leaves_out_every_host(host: str):
    assert not ProxySettings(no_proxy="*").uses_proxy(host, 80)


@pytest.mark.parametrize(
    "entry", [":1", "", ",", "[::1", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fe80::1%eth0"]
)
def test_an_entry_that_cannot_be_read_leaves_out_nobody(entry: str):
    assert ProxySettings(no_proxy=entry).uses_proxy("example.com", 80)
    assert ProxySettings(no_proxy=entry).uses_proxy("10.0.0.1", 80)


@pytest.mark.parametrize(
    "entry", ["10.0.0.1", "10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104"]
)
@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1"])
def test_an_ipv4_address_that_is_written_as_ipv6_is_the_same_address(entry: str, host: str):
    assert not ProxySettings(no_proxy=entry).uses_proxy(host, 80)


def test_the_environments_upper_case_comes_before_its_lower_case():
    found = ProxySettings.of(
        {
            "HTTP_PROXY": "httpproxy",
            "http_proxy": "other",
            "https_proxy": "httpsproxy",
            "no_proxy": "noproxy",
        }
    )
    assert found == ProxySettings(http="httpproxy", https="httpsproxy", no_proxy="noproxy")


@pytest.mark.parametrize(
    ("no_proxy", "server", "by_proxy"),
    [
        pytest.param("10.0.0.0/8", "http://10.96.0.1:443", False, id="CIDR"),
        pytest.param("fd00::/8", "http://[fd00::1]:443", False, id="CIDR of IPv6"),
        pytest.param("inside:6443", "http://inside:6443", False, id="host and port"),
        pytest.param("inside:6443", "http://inside:443", True, id="another port"),
        pytest.param("", "http://127.0.0.1:6443", False, id="loopback"),
        pytest.param("", "http://outside:443", True, id="anybody else"),
    ],
)
async def test_a_connection_goes_by_the_environments_proxy_but_for_whom_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str, server: str, by_proxy: bool
):
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    found = await open_connection(kubeconfig=kubeconfig(tmp_path, server))
    assert found.credentials.access().proxy == ("http://proxy:3128" if by_proxy else None)
    await found.close()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4"])
@pytest.mark.parametrize("place", ["environment", "kubeconfig"])
async def test_a_socks_proxy_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, place: str
):
    url = f"{scheme}://user:secret@proxy:1080"
    cluster = {}
    if place == "environment":
        monkeypatch.setenv("HTTP_PROXY", url)
    else:
        cluster["proxy-url"] = url
    with pytest.raises(ConnectError, match="SOCKS proxies are not supported") as refused:
        await open_connection(
            kubeconfig=kubeconfig(tmp_path, "http://outside:443", cluster=cluster)
        )
    assert place in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "password",
    ["S3CRET", "1/S3CRET", "a@S3CRET", "//S3CRET", "S3CRET/b", "S3CRET@b", "\nS3CRET", "℀S3CRET"],
)
@pytest.mark.parametrize(
    "url", ["socks5://robot:{}@proxy:1080", "ftp://robot:{}@proxy", "robot:{}@proxy"]
)
def test_a_password_is_in_no_error_whatever_characters_it_has(
    password: str, url: str, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(ConnectError, match=r"\*\*\*@") as refused:
        proxy_for("http://outside:443", url.format(password), {})
    assert "S3CRET" not in str(refused.value)
    proxy_for("https://outside:443", None, {"HTTPS_PROXY": f"robot:{password}@proxy:port"})
    assert "S3CRET" not in caplog.text


@pytest.mark.parametrize("password", ["S3CRET", "S3CRET/b", "[S3CRET", "℀S3CRET"])
def test_a_proxy_that_is_no_url_is_refused_without_its_password(password: str):
    with pytest.raises(ConnectError, match="expected http://HOST:PORT") as refused:
        proxy_for("http://outside:443", f"http://robot:{password}@proxy:port", {})
    assert "S3CRET" not in str(refused.value)


def test_a_proxy_without_a_password_is_shown_whole():
    with pytest.raises(ConnectError, match="'socks5://proxy:1080'"):
        proxy_for("http://outside:443", "socks5://proxy:1080", {})


def test_a_proxy_of_a_scheme_that_nobody_speaks_is_refused():
    with pytest.raises(ConnectError, match="expected http://HOST:PORT"):
        proxy_for("http://outside:443", "proxy:3128", {})


async def test_a_kubeconfigs_own_proxy_is_used_whatever_the_environment_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_PROXY", "*")
    path = kubeconfig(tmp_path, "http://outside:443", cluster={"proxy-url": "https://proxy:3128"})
    found = await open_connection(kubeconfig=path)
    assert found.credentials.access().proxy == "https://proxy:3128"
    await found.close()
