"""Takes reports over HTTP: who are you, not too often, what do you say, noted on the pod and counted.

Why it exists: the order matters. Nothing of a body is read before its sender is known, and nothing is asked of the API
server that was asked a moment ago. Every answer is short; the sender does not wait for it, and says it to nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web

from preheat_operator.answers import identity
from preheat_operator.answers.identity import Known, Pod, Refused
from preheat_operator.answers.limits import REVIEWS, Limiter, Limits
from preheat_operator.answers.message import MAX_BODY_BYTES, MessageError, parse
from preheat_operator.answers.noting import Notes, NotNoted
from preheat_operator.cluster.client import ApiError, path_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from preheat_operator.answers.metrics import Metrics
    from preheat_operator.cluster.client import Api

_LOG: Final = logging.getLogger(__name__)
REPORTS_PATH: Final = "/v1/reports"
_REVIEWS_AT_ONCE: Final = 16
_REQUESTS_AT_ONCE: Final = 256
_BODY_SECONDS: Final = 10.0
_QUIET_SECONDS: Final = 60.0
_REVIEWS: Final = path_of(group="authentication.k8s.io", plural="tokenreviews")


class Unavailable(Exception):
    """The API server did not answer about a token, or was asked too much."""


class Intake:
    """The resource that pods report to."""

    def __init__(
        self,
        *,
        api: Api,
        metrics: Metrics,
        audience: str,
        limits: Limits | None = None,
        known: Known | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._audience = audience
        self._limits = limits or Limits()
        self._known = known or Known()
        self._clock = clock
        self.notes = Notes(api=api, clock=lambda: self._clock(), wall=wall)
        self._reviews = Limiter(REVIEWS)
        self._asking = asyncio.Semaphore(_REVIEWS_AT_ONCE)
        self._at_once = 0
        self._complained = float("-inf")

    def application(self) -> web.Application:
        """The HTTP application."""
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._bounded])
        application.router.add_post(REPORTS_PATH, self._report)
        return application

    @web.middleware
    async def _bounded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._at_once >= _REQUESTS_AT_ONCE:
            return self._refused("unavailable", 503, "busy", retry=10)
        self._at_once += 1
        try:
            return await handler(request)
        finally:
            self._at_once -= 1

    async def _report(self, request: web.Request) -> web.Response:
        token = identity.bearer(request.headers.get("Authorization"))
        if token is None:
            return self._refused("token", 401, "a bearer token is needed")
        try:
            pod = await self._identify(token)
        except Unavailable as error:
            return self._refused("unavailable", 503, str(error), retry=10)
        if isinstance(pod, Refused):
            return self._refused("token", 401, pod.why)
        if not self._limits.allows(pod, self._clock()):
            return self._refused("rate", 429, "too many reports", retry=60)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
            message = parse(body)
        except web.HTTPRequestEntityTooLarge:
            return self._refused("body", 413, f"more than {MAX_BODY_BYTES} bytes")
        except MessageError as error:
            return self._refused("body", 400, str(error))
        except TimeoutError:
            return self._refused("body", 408, "the body did not come")
        try:
            await self.notes.add(pod, message)
        except NotNoted as error:
            return self._refused("unavailable", 503, str(error), retry=10)
        self._metrics.add(pod.namespace, message)
        return web.Response(status=204)

    def _refused(self, why: str, status: int, words: str, *, retry: int = 0) -> web.Response:
        self._metrics.refuse(why)
        headers = {"Retry-After": str(retry)} if retry else {}
        return web.Response(status=status, text=f"{words}\n", headers=headers)

    async def _identify(self, token: str) -> Pod | Refused:
        """Whose token it is. Raises Unavailable."""
        found = self._known.get(token, self._clock())
        if found is not None:
            return found
        if not self._reviews.allows("all", self._clock()):
            raise Unavailable("too many tokens to ask about")
        async with self._asking:
            # Somebody may have asked about the same one meanwhile.
            found = self._known.get(token, self._clock())
            if found is None:
                found = await self._ask(token)
                self._known.put(token, found, self._clock())
        return found

    async def _ask(self, token: str) -> Pod | Refused:
        try:
            review = await self._api.request("POST", _REVIEWS, body=identity.question(token, self._audience))
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            self._complain(error)
            raise Unavailable("the API server does not answer about tokens") from None
        return identity.verdict(review, self._audience)

    def _complain(self, error: Exception) -> None:
        """Say it to people, but not for each report."""
        if self._clock() - self._complained >= _QUIET_SECONDS:
            self._complained = self._clock()
            _LOG.warning("no TokenReview could be had: %s: %s", type(error).__name__, error)
