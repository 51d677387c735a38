"""The few S3 operations Preheat uses, with every failure turned into one of ours.

Callers above see bytes, sizes and `StoreError`s; botocore's exceptions, error codes and streaming quirks end here.
"""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.store.errors import (
    InternalError,
    StoreCredentialsMissingError,
    StoreDeniedError,
    StoreError,
    StoreUnreachableError,
)
from preheat_operator.store.interface import ObjectInfo, Versioned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_s3 import S3Client

CHUNK_BYTES: Final = 256 * 1024
STREAM_ATTEMPTS: Final = 2
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_CONDITION_FAILED = frozenset({"PreconditionFailed", "412"})
_LATER = frozenset(
    {
        "ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestTimeout",
        "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException",
        # The server saw other bytes than we hashed: damage on the way, worth another attempt.
        "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
    }
)  # fmt: skip


class ObjectStore:
    """One bucket through one client: `Objects` on S3."""

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object, None when there is none."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        except Exception as error:
            if _code(error) in _MISSING:
                return None
            raise translate(error, f"head {key}") from error
        return ObjectInfo(size=answer["ContentLength"], sha256=_hex_or_none(answer.get("ChecksumSHA256")))

    def get(self, key: str, *, limit: int) -> bytes | None:
        """Return a small object whole, None when there is none; of a larger one the first `limit` + 1 bytes.

        The caller compares digests or parses strictly, so a longer answer is seen as wrong without being held.
        """
        found = self.get_versioned(key, limit=limit)
        return None if found is None else found.data

    def get_versioned(self, key: str, *, limit: int) -> Versioned | None:
        """Return what `get` does, with the server's ETag.

        A stream that is cut is tried again: botocore retries only until an answer begins.
        """
        for _ in range(STREAM_ATTEMPTS - 1):
            with contextlib.suppress(StoreUnreachableError):
                return self._get(key, limit)
        return self._get(key, limit)

    def _get(self, key: str, limit: int) -> Versioned | None:
        parts: list[bytes] = []
        left = limit + 1
        with self._open(key) as found:
            if found is None:
                return None
            chunks, version = found
            for chunk in chunks:
                parts.append(chunk[:left])
                left -= len(parts[-1])
                if left <= 0:
                    break
        return Versioned(data=b"".join(parts), version=version)

    @contextlib.contextmanager
    def chunks(self, key: str) -> Iterator[Iterator[bytes] | None]:
        """Open an object as a stream of chunks; None when there is none. A cut stream raises StoreUnreachableError."""
        with self._open(key) as found:
            yield None if found is None else found[0]

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[tuple[Iterator[bytes], str] | None]:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
        except Exception as error:
            if _code(error) not in _MISSING:
                raise translate(error, f"get {key}") from error
            answer = None
        if answer is None:
            yield None
            return
        with contextlib.closing(answer["Body"]) as body:
            yield _read_all(body, key), answer.get("ETag", "")

    def put(self, key: str, data: bytes, *, sha256: str, only_if_absent: bool) -> bool:
        """Write an object; the server verifies `sha256` (hexadecimal). False when it was there and `only_if_absent`."""
        return self._put(key, data, sha256, {"IfNoneMatch": "*"} if only_if_absent else {})

    def replace(self, key: str, data: bytes, *, sha256: str, version: str) -> bool:
        """Write over an object that still has the ETag `version`; False when it has not."""
        return self._put(key, data, sha256, {"IfMatch": version})

    def _put(self, key: str, data: bytes, sha256: str, condition: dict[str, Any]) -> bool:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ChecksumSHA256=checksum, **condition)
        except Exception as error:
            # An object that is to be replaced may also have gone.
            if condition and (
                _code(error) in _CONDITION_FAILED or ("IfMatch" in condition and _code(error) in _MISSING)
            ):
                return False
            raise translate(error, f"put {key}") from error
        return True


def translate(error: Exception, doing: str) -> StoreError:
    """Return the StoreError an exception of botocore means; `doing` is operation and key."""
    from botocore import exceptions

    if isinstance(error, StoreError):
        return error
    if isinstance(error, exceptions.ClientError):
        code = _code(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{doing}: the store answered {status} {code}"
        if code in _LATER or status >= 500 or status == 429:
            return StoreUnreachableError(said)
        if code == "NoSuchBucket":
            return StoreDeniedError(f"{said}: there is no such bucket")
        if status == 403 and doing.startswith(("get", "head")):
            return StoreDeniedError(f"{said} (also the answer for a missing object without the right s3:ListBucket)")
        if status in (301, 307, 400, 401, 403):
            return StoreDeniedError(f"{said}: credentials, bucket policy, region or clock")
        return InternalError(said)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return StoreCredentialsMissingError(f"{doing}: there are no credentials")
    if isinstance(error, exceptions.CredentialRetrievalError):
        return StoreDeniedError(f"{doing}: the credentials could not be fetched ({type(error).__name__})")
    if isinstance(error, exceptions.SSLError):
        return StoreUnreachableError(f"{doing}: TLS failed; is the certificate's CA given (PREHEAT_STORE_CA)?")
    if isinstance(
        error,
        exceptions.HTTPClientError
        | exceptions.ConnectionError
        | exceptions.ResponseStreamingError
        | exceptions.IncompleteReadError,
    ):
        return StoreUnreachableError(f"{doing}: {type(error).__name__}")
    if isinstance(error, OSError):
        return StoreUnreachableError(f"{doing}: {type(error).__name__}")
    return InternalError(f"{doing}: {type(error).__name__}")


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _hex_or_none(checksum: str | None) -> str | None:
    if not checksum:
        return None
    try:
        raw = base64.b64decode(checksum, validate=True)
    except ValueError:
        return None
    # A multipart upload's checksum is "<hash>-<parts>" and says nothing about the whole.
    return raw.hex() if len(raw) == 32 else None


def _read_all(body: Any, key: str) -> Iterator[bytes]:
    """Yield the chunks of a body. A body that ends before its length counts as cut, never as short."""
    try:
        while chunk := body.read(CHUNK_BYTES):
            yield chunk
    except Exception as error:
        raise translate(error, f"get {key}") from error
