"""Policies that ask by a provider's batch API: slower, and at half the price where the provider says so.

Requests that come together are one batch. A turn takes as long as its batch, minutes to a day, so play many rollouts at
once. A batch that is under way when the process ends is cancelled, as far as the provider still can.

Sources: OpenAI's API reference, `/files` and `/batches`; Anthropic's, `/v1/messages/batches`; Google's,
`models.batchGenerateContent`, with requests in the call itself.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp
import msgspec
from yarl import URL

from wanderlust.errors import one_line
from wanderlust.policies.anthropic_messages import AnthropicMessages
from wanderlust.policies.endpoint import AnswerT, Call, Endpoint, Fault, HttpConnection, parse_http_answer, safe_url
from wanderlust.policies.gemini_content import GeminiContent
from wanderlust.policies.refusals import Refusal

GATHER_SECONDS = 2.0
"""A batch is sent when no further request has come for so long."""
MAX_BATCH_REQUESTS = 50_000
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 60.0
"""Pause before the first look at a batch, which doubles with each further one, and its bound."""
MAX_LOST_POLLS = 8
"""Looks in a row that may fail before a batch is given up."""


class _BatchLost(Exception):
    """A batch that gives no answers, with the reason."""


class _BatchRefused(Exception):
    """An HTTP status in the place of a batch, with its body."""

    def __init__(self, status: int, body: bytes):
        super().__init__(status)
        self.status, self.body = status, body


@dataclass(frozen=True, slots=True)
class _Result:
    """The answer to one request of a batch."""

    status: int
    body: bytes


Named = tuple[str, _Result]
"""A request's id and its result."""


class BatchApi(ABC):
    """How a provider takes batches."""

    max_bytes: ClassVar[int] = 100 << 20
    """A batch is sent before its requests have more bytes than this."""

    def __init__(self, session: aiohttp.ClientSession, url: URL):
        """`url` is the one that single requests are posted to."""
        self.session, self.url = session, url

    @abstractmethod
    async def submit(self, bodies: Mapping[str, msgspec.Raw]) -> str:
        """Send a batch; returns its id."""

    @abstractmethod
    async def look(self, batch: str) -> list[Named] | None:
        """The results by the requests' ids, in any order; None while the batch is under way."""

    @abstractmethod
    async def cancel(self, batch: str) -> None:
        """Ask the provider to cancel a batch."""

    async def call(self, method: str, url: URL, **more: Any) -> bytes:
        """The body of a successful call. Raises _BatchRefused for another status."""
        async with self.session.request(method, url, allow_redirects=False, **more) as response:
            body = await response.read()
            if response.status >= 300:
                raise _BatchRefused(response.status, body)
            return body


class _OpenAIBatch(msgspec.Struct):
    id: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Any = None


class _OpenAIFile(msgspec.Struct):
    id: str


class _OpenAIResponse(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"{}")


class _OpenAILine(msgspec.Struct):
    custom_id: str
    response: _OpenAIResponse | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class OpenAIBatches(BatchApi):
    """Batches of chat completions: a file of requests, a batch of it, and a file of results."""

    async def submit(self, bodies: Mapping[str, msgspec.Raw]) -> str:
        """As `BatchApi`."""
        lines = (
            msgspec.json.encode({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body})
            for id, body in bodies.items()
        )
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", b"\n".join(lines), filename="requests.jsonl", content_type="application/jsonl")
        payload = form()
        headers = {"Content-Type": payload.headers["Content-Type"]}
        answer = await self.call("POST", self._base / "files", data=payload, headers=headers)
        file = msgspec.json.decode(answer, type=_OpenAIFile).id
        order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        answer = await self.call("POST", self._base / "batches", data=msgspec.json.encode(order))
        return msgspec.json.decode(answer, type=_OpenAIBatch).id

    async def look(self, batch: str) -> list[Named] | None:
        """As `BatchApi`. Raises _BatchLost for one that failed as a whole."""
        state = msgspec.json.decode(await self.call("GET", self._base / "batches" / batch), type=_OpenAIBatch)
        if state.status in ("validating", "in_progress", "finalizing", "cancelling"):
            return None
        files = [file for file in (state.output_file_id, state.error_file_id) if file]
        if not files:
            raise _BatchLost(f"the batch {one_line(batch)} {one_line(state.status)}: {one_line(str(state.errors))}")
        found: list[Named] = []
        for file in files:
            found += self._results(await self.call("GET", self._base / "files" / file / "content"))
        return found

    async def cancel(self, batch: str) -> None:
        """As `BatchApi`."""
        await self.call("POST", self._base / "batches" / batch / "cancel")

    @property
    def _base(self) -> URL:
        return self.url.parent.parent

    def _results(self, content: bytes) -> Iterator[Named]:
        for line in filter(None, content.splitlines()):
            read = msgspec.json.decode(line, type=_OpenAILine)
            if read.response is not None:
                yield read.custom_id, _Result(read.response.status_code, bytes(read.response.body))
            else:  # the request was not asked: it expired, or was cancelled
                yield read.custom_id, _Result(503, bytes(read.error))


class _AnthropicBatch(msgspec.Struct):
    id: str
    processing_status: str


class _AnthropicResult(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"{}")
    error: msgspec.Raw = msgspec.Raw(b"{}")


class _AnthropicLine(msgspec.Struct):
    custom_id: str
    result: _AnthropicResult


class AnthropicBatches(BatchApi):
    """Batches of messages."""

    async def submit(self, bodies: Mapping[str, msgspec.Raw]) -> str:
        """As `BatchApi`."""
        requests = [{"custom_id": id, "params": body} for id, body in bodies.items()]
        answer = await self.call("POST", self.url / "batches", data=msgspec.json.encode({"requests": requests}))
        return msgspec.json.decode(answer, type=_AnthropicBatch).id

    async def look(self, batch: str) -> list[Named] | None:
        """As `BatchApi`. The results are read below the base URL: the key goes to no other address."""
        place = self.url / "batches" / batch
        state = msgspec.json.decode(await self.call("GET", place), type=_AnthropicBatch)
        if state.processing_status != "ended":
            return None
        lines = (await self.call("GET", place / "results")).splitlines()
        return [self._result(msgspec.json.decode(line, type=_AnthropicLine)) for line in filter(None, lines)]

    async def cancel(self, batch: str) -> None:
        """As `BatchApi`."""
        await self.call("POST", self.url / "batches" / batch / "cancel")

    def _result(self, line: _AnthropicLine) -> Named:
        result = line.result
        if result.type == "succeeded":
            return line.custom_id, _Result(200, bytes(result.message))
        if result.type != "errored":
            body = {"error": {"type": result.type, "message": f"the request was {result.type}"}}
            return line.custom_id, _Result(503, msgspec.json.encode(body))
        error = bytes(result.error)
        status = 400 if b"invalid_request_error" in error else 500
        return line.custom_id, _Result(status, error)


class _GeminiItem(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _GeminiItems(msgspec.Struct, rename="camel"):
    inlined_responses: list[_GeminiItem] = []


class _GeminiOutput(msgspec.Struct, rename="camel"):
    inlined_responses: _GeminiItems | None = None


class _GeminiState(msgspec.Struct):
    state: str = ""
    output: _GeminiOutput | None = None


class _GeminiBatch(msgspec.Struct):
    name: str
    done: bool = False
    metadata: _GeminiState = msgspec.field(default_factory=_GeminiState)
    response: _GeminiOutput | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _GeminiError(msgspec.Struct):
    code: int = 0
    message: str = ""


_GRPC_HTTP = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 16: 401}
"""HTTP statuses of the status codes in Google's errors; others are 503."""


class GeminiBatches(BatchApi):
    """Batches of `generateContent`. Results come in the order of the requests."""

    max_bytes = 16 << 20

    def __init__(self, session: aiohttp.ClientSession, url: URL):
        super().__init__(session, url)
        self._ids: dict[str, list[str]] = {}

    async def submit(self, bodies: Mapping[str, msgspec.Raw]) -> str:
        """As `BatchApi`."""
        requests = [{"request": body, "metadata": {"key": id}} for id, body in bodies.items()]
        batch = {"displayName": "wander", "inputConfig": {"requests": {"requests": requests}}}
        url = self.url.with_name(self.url.name.replace(":generateContent", ":batchGenerateContent"))
        answer = await self.call("POST", url, data=msgspec.json.encode({"batch": batch}))
        name = msgspec.json.decode(answer, type=_GeminiBatch).name
        self._ids[name] = list(bodies)
        return name

    async def look(self, batch: str) -> list[Named] | None:
        """As `BatchApi`. Raises _BatchLost for one that failed, expired or was cancelled as a whole."""
        state = msgspec.json.decode(await self.call("GET", self._place(batch)), type=_GeminiBatch)
        ended = ("_SUCCEEDED", "_FAILED", "_CANCELLED", "_EXPIRED")
        if not state.done and not state.metadata.state.endswith(ended):
            return None
        output = state.response or state.metadata.output
        if output is None or output.inlined_responses is None:
            what = state.metadata.state or "ended without results"
            raise _BatchLost(f"{one_line(batch)}: {one_line(what)}: {one_line(bytes(state.error).decode())}")
        items = output.inlined_responses.inlined_responses
        ids = self._ids.pop(batch)
        if len(items) != len(ids):
            raise _BatchLost(f"{one_line(batch)} has {len(items)} results for {len(ids)} requests")
        return [(id, self._result(item)) for id, item in zip(ids, items, strict=True)]

    async def cancel(self, batch: str) -> None:
        """As `BatchApi`."""
        place = self._place(batch)
        await self.call("POST", place.with_name(f"{place.name}:cancel"))

    def _place(self, batch: str) -> URL:
        """Below the base URL, whatever the name is: the key goes to no other address."""
        return self.url.parent.parent / "batches" / batch.removeprefix("batches/").replace("/", "_")

    def _result(self, item: _GeminiItem) -> _Result:
        if item.response:
            return _Result(200, bytes(item.response))
        error = msgspec.json.decode(bytes(item.error) or b"{}", type=_GeminiError)
        status = error.code if error.code >= 400 else _GRPC_HTTP.get(error.code, 503)
        return _Result(status, msgspec.json.encode({"error": {"message": error.message}}))


@dataclass(slots=True)
class _Waiting:
    body: bytes
    done: asyncio.Future[_Result | Fault] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class BatchQueue:
    """Collects requests into batches and gives each its own answer."""

    def __init__(self, api: BatchApi):
        self._api = api
        self._waiting: list[_Waiting] = []
        self._tasks = set[asyncio.Task[None]]()
        self._gathering = False
        self._sent = 0

    async def answer(self, body: bytes) -> _Result | Fault:
        """The answer to one request, when its batch is through."""
        entry = _Waiting(body)
        self._waiting.append(entry)
        if not self._gathering:
            self._gathering = True
            self._start(self._gather())
        return await entry.done

    async def close(self) -> None:
        """Cancel what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gather(self) -> None:
        known = 0
        while known < len(self._waiting) < MAX_BATCH_REQUESTS:
            known = len(self._waiting)
            await asyncio.sleep(GATHER_SECONDS)
        waiting, self._waiting, self._gathering = self._waiting, [], False
        batch: list[_Waiting] = []
        for entry in (entry for entry in waiting if not entry.done.done()):
            if batch and sum(len(one.body) for one in batch) + len(entry.body) > self._api.max_bytes:
                self._start(self._play(batch))
                batch = []
            batch.append(entry)
        self._start(self._play(batch))

    async def _play(self, entries: Sequence[_Waiting]) -> None:
        """Send a batch and hand out its answers; what goes wrong is every request's fault that has no answer yet."""
        self._sent += 1
        named = {f"wander-{self._sent}-{number}": entry for number, entry in enumerate(entries)}
        try:
            for id, result in await self._results({id: msgspec.Raw(entry.body) for id, entry in named.items()}):
                if id in named and not named[id].done.done():
                    named[id].done.set_result(result)
            rest: _Result | Fault = Fault("the batch has no answer to this request")
        except _BatchRefused as refused:
            rest = _Result(refused.status, refused.body)
        except (_BatchLost, aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
            rest = Fault(f"the batch broke off: {one_line(str(error)) or type(error).__name__}")
        for entry in entries:
            if not entry.done.done():
                entry.done.set_result(rest)

    async def _results(self, bodies: Mapping[str, msgspec.Raw]) -> list[Named]:
        batch = await self._api.submit(bodies)
        pause, lost = FIRST_POLL_SECONDS, 0
        try:
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_POLL_SECONDS)
                try:
                    found = await self._api.look(batch)
                except (aiohttp.ClientError, TimeoutError, _BatchRefused):
                    lost += 1
                    if lost == MAX_LOST_POLLS:
                        raise
                    continue
                lost = 0
                if found is not None:
                    return found
        except asyncio.CancelledError:
            with suppress(aiohttp.ClientError, TimeoutError, _BatchRefused):
                await self._api.cancel(batch)
            raise


class _Batched(HttpConnection):
    """A connection whose calls travel in batches."""

    batch_api: ClassVar[type[BatchApi]]
    url: URL
    _queue: BatchQueue | None = None

    async def __aexit__(self, *error: object) -> None:
        if self._users == 1 and self._queue is not None:
            queue, self._queue = self._queue, None
            await queue.close()
        await super().__aexit__(*error)

    async def _call(self, call: Call[AnswerT]) -> AnswerT | Fault | Refusal:
        if self._session is None:
            return Fault(f"{safe_url(call.url)} is used outside of its session")
        if self._queue is None:
            self._queue = BatchQueue(self.batch_api(self._session, self.url))
        result = await self._queue.answer(call.body)
        if isinstance(result, Fault):
            return result
        return parse_http_answer(call, result.body, status=result.status, headers={})


class BatchedEndpoint(_Batched, Endpoint):
    """An OpenAI-compatible endpoint, asked by its batches."""

    batch_api = OpenAIBatches


class BatchedAnthropicMessages(_Batched, AnthropicMessages):
    """Anthropic's messages, asked by batches."""

    batch_api = AnthropicBatches


class BatchedGemini(_Batched, GeminiContent):
    """Google's `generateContent`, asked by batches."""

    batch_api = GeminiBatches
