"""`lookup`: says which weights lie in S3 or on Hugging Face now, as one text that differs when they do.

It runs in the model's namespace with the serving container's own variables and service account, since only these may
be allowed to look there; the controller never sees such a credential. It reads names and hashes, never weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.containers import exits, termination

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_OBJECTS: Final = 100_000
_SECONDS: Final = 20
_MAX_ANSWER: Final = 4 * 1024 * 1024
_HUB: Final = "https://huggingface.co"


class LookupFailedError(Exception):
    """Nothing could be seen; `reason` is one word, the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main() -> int:
    """Look, and write what was seen as the termination message; returns the exit code."""
    try:
        seen = look(json.loads(os.environ.get(names.ENV_LOOKUP, "")), os.environ)
        message, code = json.dumps({"v": 1, "weights": seen}).encode(), exits.OK
    except LookupFailedError as error:
        message, code = termination.failed(error.reason, str(error)), exits.REFUSED
    except Exception as error:
        traceback.print_exc()
        message, code = termination.failed("Internal", f"{type(error).__name__}: {error}"), exits.INTERNAL
    termination.write(message, os.environ)
    sys.stdout.write(message.decode() + "\n")
    return code


def look(what: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """What lies where `what` (`spec.weights` as in the API) says. Raises LookupFailedError."""
    if what.get("s3"):
        return in_s3(what["s3"])
    if what.get("huggingFace"):
        return on_hugging_face(what["huggingFace"], env)
    raise LookupFailedError("Internal", "neither s3 nor huggingFace was asked for")


def in_s3(source: Mapping[str, Any]) -> str:
    """`s3:` and a hash over the names, sizes and ETags below a prefix. Raises LookupFailedError."""
    import botocore.config
    import botocore.exceptions
    import botocore.session

    bucket, prefix = source["bucket"], source.get("prefix", "")
    where = f"s3://{bucket}/{prefix}"
    try:
        session = botocore.session.Session()
        # The metadata service is left out: where a network policy drops its packets, asking it hangs.
        session.get_component("credential_provider").remove("iam-role")
        client: Any = session.create_client(
            "s3",
            region_name=source.get("region") or os.environ.get("AWS_REGION") or "us-east-1",
            endpoint_url=source.get("endpoint"),
            config=botocore.config.Config(
                connect_timeout=5, read_timeout=_SECONDS, retries={"mode": "standard", "total_max_attempts": 3},
                s3={"addressing_style": "path" if source.get("endpoint") else "virtual"}, user_agent_extra="preheat",
            ),
        )  # fmt: skip
        seen: list[tuple[str, int, str]] = []
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            seen += [(entry["Key"], entry["Size"], entry["ETag"]) for entry in page.get("Contents", ())]
            if len(seen) > MAX_OBJECTS:
                raise LookupFailedError("TooMany", f"{where} has more than {MAX_OBJECTS} objects: name a longer prefix")
    except botocore.exceptions.NoCredentialsError:
        raise LookupFailedError(
            "NoCredentials",
            "the serving container has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and its service account no web identity",
        ) from None
    except botocore.exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        raise LookupFailedError("Denied", f"{where} cannot be listed ({code}): check bucket, keys and rights") from None
    except botocore.exceptions.BotoCoreError as error:
        raise LookupFailedError("Unreachable", f"{where} cannot be reached: {type(error).__name__}") from None
    if not seen:
        raise LookupFailedError("Nothing", f"there is nothing at {where}: check bucket and prefix")
    lines = "".join(f"{key}\0{size}\0{tag}\n" for key, size, tag in sorted(seen))
    return f"s3:{hashlib.sha256(lines.encode()).hexdigest()}"


def on_hugging_face(source: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """`hf:` and the commit that a revision stands for. Raises LookupFailedError."""
    hub = (env.get("HF_ENDPOINT") or _HUB).rstrip("/")
    repository, revision = source["repository"], source.get("revision", "main")
    where = f"{repository} at {revision}"
    path = f"/api/models/{urllib.parse.quote(repository)}/revision/{urllib.parse.quote(revision, safe='')}"
    token = env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or ""
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    if urllib.parse.urlsplit(hub).scheme not in ("http", "https"):
        raise LookupFailedError("Unreachable", "HF_ENDPOINT must be an http or https URL")
    try:
        opener = urllib.request.build_opener(_SameHost())
        with opener.open(urllib.request.Request(hub + path, headers=headers), timeout=_SECONDS) as answer:  # noqa: S310
            document = json.loads(answer.read(_MAX_ANSWER))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            words = "private, gated, or not there: set HF_TOKEN in the serving container"
        elif error.code == 404:
            words = "not there: check repository and revision"
        else:
            raise LookupFailedError("Unreachable", f"the Hub answers {error.code} for {where}") from None
        raise LookupFailedError("Denied", f"{where} is {words}") from None
    except (OSError, ValueError) as error:
        raise LookupFailedError("Unreachable", f"the Hub cannot be asked for {where}: {type(error).__name__}") from None
    commit = document.get("sha") if isinstance(document, dict) else None
    if not isinstance(commit, str) or not commit.isalnum() or len(commit) > 64:
        raise LookupFailedError("Unreachable", f"the Hub's answer for {where} names no commit")
    return f"hf:{commit}"


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects (a repository that was renamed), but takes the token to no other host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if request is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            request.remove_header("Authorization")
        return request


if __name__ == "__main__":
    sys.exit(main())
