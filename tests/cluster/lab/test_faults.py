"""What tests do to the lab can be undone: the store, the node and its parts come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.s3 import S3

pytestmark = pytest.mark.cluster


def test_store_keeps_its_data_while_it_is_gone(s3: S3) -> None:
    s3.client().put_object(Bucket=s3.bucket, Key="lab/kept", Body=b"here")
    s3.stop()
    with pytest.raises(EndpointConnectionError):
        s3.client().get_object(Bucket=s3.bucket, Key="lab/kept")
    s3.start()
    assert s3.client().get_object(Bucket=s3.bucket, Key="lab/kept")["Body"].read() == b"here"
    assert "lab/kept" in s3.keys("lab/")


def test_fetch_credentials_read_and_do_not_write(s3: S3) -> None:
    s3.client().put_object(Bucket=s3.bucket, Key="lab/readable", Body=b"here")
    reader = s3.client(s3.fetch)
    assert reader.get_object(Bucket=s3.bucket, Key="lab/readable")["Body"].read() == b"here"
    with pytest.raises(ClientError, match="AccessDenied"):
        reader.put_object(Bucket=s3.bucket, Key="lab/readable", Body=b"changed")
    with pytest.raises(ClientError, match="AccessDenied"):
        reader.delete_object(Bucket=s3.bucket, Key="lab/readable")


def test_second_conditional_write_is_refused(s3: S3) -> None:
    client = s3.client()
    client.delete_object(Bucket=s3.bucket, Key="lab/once")
    client.put_object(Bucket=s3.bucket, Key="lab/once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3.bucket, Key="lab/once", Body=b"second", IfNoneMatch="*")


def test_node_that_is_lost_loses_its_pods_and_comes_back(lab: Lab, namespace: str) -> None:
    container = {"name": "main", "image": lab.images.pause().tagged}
    lab.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}},
        namespace=namespace,
    )
    lab.kubectl("wait", "pod/p", "-n", namespace, "--for=condition=Ready", "--timeout=60s")
    lab.node.delete()
    try:
        gone = lambda: not lab.kubectl("get", "pod", "p", "-n", namespace, "--ignore-not-found", "-o", "name")  # noqa: E731
        lab.wait("pod of the lost node to go", gone, seconds=120)
    finally:
        lab.node.join()
    lab.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": {"containers": [container]}},
        namespace=namespace,
    )
    lab.kubectl("wait", "pod/q", "-n", namespace, "--for=condition=Ready", "--timeout=60s")


def test_containers_outlive_a_restart_of_the_node(lab: Lab, namespace: str) -> None:
    container = {"name": "main", "image": lab.images.pause().tagged}
    lab.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}},
        namespace=namespace,
    )
    lab.kubectl("wait", "pod/p", "-n", namespace, "--for=condition=Ready", "--timeout=60s")

    def container_id() -> str:
        return str(lab.get("pod", "p", "-n", namespace)["status"]["containerStatuses"][0]["containerID"])

    before = container_id()
    lab.node.restart()
    assert container_id() == before


def test_api_server_comes_back(lab: Lab) -> None:
    lab.stop_api()
    try:
        assert "ok" not in lab.kubectl("get", "--raw", "/readyz", "--request-timeout=2s", check=False)
    finally:
        lab.start_api()
    assert lab.kubectl("get", "--raw", "/readyz").strip() == "ok"
