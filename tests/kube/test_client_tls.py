"""Our side of TLS to the API server: nothing older than 1.2, and only the authority of the
kubeconfig.
"""

import base64
import ssl
import warnings
from pathlib import Path

import pytest

from extender.kube.api import PODS, OutcomeUnknown
from extender.kube.client import KubeApi
from tests.kube.apiserver import ApiServer, answer, kubeconfig, serve
from tests.service.authority import Authority

OBJ = {"metadata": {"name": "a"}}


def serving(authority: Authority, newest: ssl.TLSVersion) -> ssl.SSLContext:
    """A server that speaks nothing newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(*authority.issue("localhost"))
    return context


@pytest.mark.parametrize(
    ("newest", "connects"),
    [
        pytest.param(ssl.TLSVersion.TLSv1_1, False, id="1.1"),
        pytest.param(ssl.TLSVersion.TLSv1_2, True, id="1.2"),
        pytest.param(ssl.TLSVersion.TLSv1_3, True, id="1.3"),
    ],
)
async def test_an_api_server_that_speaks_only_old_tls_is_not_spoken_to(
    tmp_path: Path, newest: ssl.TLSVersion, connects: bool
):
    authority = Authority(tmp_path, "ca")
    async with serve(ApiServer([answer(OBJ)]), serving(authority, newest)) as server:
        data = base64.b64encode(authority.pem).decode()
        url = server.url.replace("127.0.0.1", "localhost")
        path = kubeconfig(
            tmp_path, url, cluster={"certificate-authority-data": data}, user={"token": "t"}
        )
        async with await KubeApi.connect(kubeconfig=path) as api:
            if connects:
                assert await api.get(PODS, "ns", "a") == OBJ
            else:
                with pytest.raises(OutcomeUnknown, match="ConnectionFailed"):
                    await api.get(PODS, "ns", "a")
    assert len(server.seen) == connects
