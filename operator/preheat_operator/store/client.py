"""Makes the S3 client: bounded waits, no guessing, no files of the user's.

botocore's defaults are made for laptops: it reads `~/.aws`, asks a metadata address that in most clusters drops the
packets, waits 60 s for a byte, and adds checksums that not every S3 server understands. A container that delays a pod
needs the opposite, so everything that may be left to a default is said here.

botocore, not boto3, is imported, and only when a client is made: what boto3 adds (resources, transfers) is not used and
costs memory and start time in every pod.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from preheat_operator.store.config import StoreConfig, read_credentials
from preheat_operator.store.errors import StoreCredentialsMissingError

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

CONNECT_TIMEOUT_SECONDS: Final = 3
"""A store in reach accepts within milliseconds; black-holed packets must not eat a pod's deadline."""
READ_TIMEOUT_SECONDS: Final = 10
"""Between two bytes, not for a whole answer."""
ATTEMPTS: Final = 3
"""Of one request, by botocore, with its jittered back-off: rides over a restart of one gateway."""


def make_client(config: StoreConfig, *, connections: int, patient: bool = False) -> S3Client:
    """Return a thread-safe client for up to `connections` requests at once. Nothing is sent yet.

    `patient` is for publish: twice the attempts and three times the read timeout, since an hour of compiling hangs on
    it. Raises StoreCredentialsMissingError when there is neither a Secret nor web identity.
    """
    credentials = read_credentials(config.credentials)

    import botocore.config
    import botocore.session

    # Never a profile of whoever built the image, and nothing below a home that may not exist.
    session = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
    session.set_config_variable("config_file", os.devnull)
    session.set_config_variable("credentials_file", os.devnull)
    session.register_component("data_loader", _descriptions())
    if credentials is None:
        # The metadata service is left out: where a network policy drops its packets, asking it hangs.
        session.get_component("credential_provider").remove("iam-role")
        if session.get_credentials() is None:
            where = f"at {config.credentials}" if config.credentials else "(PREHEAT_STORE_CREDENTIALS is not set)"
            raise StoreCredentialsMissingError(
                f"no credentials {where} and no web identity: create the Secret in this namespace"
            )
    client: Any = session.create_client(
        "s3",
        region_name=config.region,
        endpoint_url=config.endpoint,
        verify=str(config.ca) if config.ca else None,
        aws_access_key_id=credentials.key_id if credentials else None,
        aws_secret_access_key=credentials.secret if credentials else None,
        aws_session_token=credentials.token if credentials else None,
        config=botocore.config.Config(
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=READ_TIMEOUT_SECONDS * (3 if patient else 1),
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS * (2 if patient else 1)},
            max_pool_connections=connections,
            signature_version="s3v4",
            s3={"addressing_style": "path" if config.endpoint else "virtual"},
            tcp_keepalive=True,
            # Checksums are sent where we choose them and verified by us; the defaults add trailers some servers refuse.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            user_agent_extra="preheat",
        ),
    )
    return cast("S3Client", client)


@cache
def _descriptions() -> Any:
    """botocore's description of S3 and of its endpoints: read once a process, where each session would read its own.

    Parsing them is most of what making a client takes (0.2 s). What a user keeps in `~/.aws/models` is left out.
    """
    from botocore.loaders import Loader

    return Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
