"""The lab's S3 server: SeaweedFS, with an identity that may write and one that may only read.

Why it exists: Preheat's store relies on conditional writes and checksums, which an imitation would only pretend to
have; and what pods do while the store is gone can only be seen by taking it away.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab import daemons
from lab.command import LabError, wait_for
from lab.paths import tool

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

    from lab.layout import Layout

DAEMON = "s3"
BUCKET = "preheat"
REGION = "us-east-1"
_MARKER = ".lab"  # always in the bucket; no key of Preheat begins with a dot


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """One identity of the S3 server."""

    access_key: str
    secret_key: str = field(repr=False)

    def files(self) -> dict[str, str]:
        """As the files of the Secret that Preheat mounts."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}


@dataclass(frozen=True, kw_only=True)
class S3:
    """The S3 server of a lab. ``publish`` may do everything in the bucket, ``fetch`` may read it."""

    layout: Layout

    @property
    def endpoint(self) -> str:
        return self.layout.s3_endpoint

    @property
    def bucket(self) -> str:
        return BUCKET

    @property
    def region(self) -> str:
        return REGION

    @property
    def publish(self) -> Credentials:
        return self._identity("publish")

    @property
    def fetch(self) -> Credentials:
        return self._identity("fetch")

    def start(self) -> None:
        """Starts the server, on the data it had when it was stopped, and returns when it answers (6 s at first)."""
        data = self.layout.root / "s3"
        data.mkdir(exist_ok=True)
        config = self._config()
        address = self.layout.node_address
        daemons.spawn(self.layout, DAEMON, [
            tool("weed"), "server", "-s3", f"-s3.config={config}", "-s3.port=8333", f"-ip={address}", f"-ip.bind={address}",
            f"-dir={data}", f"-filer.localSocket={data}/filer.sock", "-master.telemetry=false", "-master.volumeSizeLimitMB=512",
            "-volume.max=40",
            # Alone, it waits this long for rivals when it starts again.
            "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        ], env={"HOME": str(data)})  # fmt: skip
        wait_for("S3 server", self._answers, seconds=60, hint=f"See {self.layout.logs}/{DAEMON}.log.")

    def stop(self) -> None:
        """Kills the server; its data stay. Connections to it are then refused."""
        daemons.stop(self.layout, DAEMON, grace=0)

    def client(self, credentials: Credentials | None = None) -> S3Client:
        """A boto3 client; with the right to write unless other credentials are given."""
        import boto3
        from botocore.config import Config

        chosen = credentials or self.publish
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id=chosen.access_key,
            aws_secret_access_key=chosen.secret_key,
            config=Config(connect_timeout=3, read_timeout=30, retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
        )  # fmt: skip

    def keys(self, prefix: str = "") -> list[str]:
        """Every key of the bucket that begins so, sorted."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(item["Key"] for page in pages for item in page.get("Contents", []))

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        daemons.require_alive(self.layout, DAEMON)
        client = self.client()
        try:
            buckets = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
            if BUCKET not in buckets:
                client.create_bucket(Bucket=BUCKET)
            # The parts of the server find each other a moment after it answers: what counts is that what was written
            # before a restart can be read, and that a write goes through.
            if client.list_objects_v2(Bucket=BUCKET, Prefix=_MARKER).get("Contents"):
                client.get_object(Bucket=BUCKET, Key=_MARKER)["Body"].read()
            client.put_object(Bucket=BUCKET, Key=_MARKER, Body=b"written by the lab")
        except (BotoCoreError, ClientError) as error:
            raise LabError(str(error)) from error
        return True

    def _config(self) -> str:
        path = self.layout.root / "s3.json"
        if not path.exists():
            may = {"publish": ["Admin"], "fetch": [f"Read:{BUCKET}", f"List:{BUCKET}"]}
            identities = [
                {
                    "name": name,
                    "credentials": [{"accessKey": f"{name}{secrets.token_hex(6)}", "secretKey": secrets.token_hex(20)}],
                    "actions": actions,
                }
                for name, actions in may.items()
            ]
            path.touch(mode=0o600)
            path.write_text(json.dumps({"identities": identities}))
        return str(path)

    def _identity(self, name: str) -> Credentials:
        stored: dict[str, Any] = json.loads((self.layout.root / "s3.json").read_text())
        pair = next(identity["credentials"][0] for identity in stored["identities"] if identity["name"] == name)
        return Credentials(access_key=pair["accessKey"], secret_key=pair["secretKey"])
