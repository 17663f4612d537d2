"""OpenAI's API over language models of this process, token ids and log-probabilities included."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.agent.conversation_graph import context_digests
from wanderlust.errors import ContextFull, PolicyFailure, UsageError, WanderlustError, one_line
from wanderlust.openai_types import parse_request
from wanderlust.policies.base import OnTokens, SampledTokens, SamplingOptions, StreamingSampler, derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.streaming_text import StreamingText, cut_at_stops
from wanderlust.serving.agent_api import parse_json_body
from wanderlust.serving.dialect import Style
from wanderlust.serving.http import HttpResponse, ResponseStream, Send, error_response
from wanderlust.serving.model_requests import (
    Prompt,
    RequestOptions,
    parse_chat_completion_request,
    parse_completion_request,
)
from wanderlust.serving.streaming import Choice, WireFormat
from wanderlust.types import DeclaredTool, Message, Tool, assistant

PREFIX_CACHE_ENTRIES = 32
"""Conversations; each holds a row of the engine's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedConversation:
    """A conversation that ends in an answer."""

    messages: tuple[Message, ...]
    ids: tuple[int, ...]
    """All ids that the model has read and sampled."""
    closed: bool
    session: str


class PrefixCache:
    """The latest answered conversations, by a hash of their messages and tools; least recently used ones are dropped.

    Answers that a program repeats with other spaces at their ends, or with arguments written anew, count as equal.
    """

    def __init__(self, on_drop: Callable[[str], None]):
        """`on_drop` is called with each session that is dropped."""
        self._on_drop = on_drop
        self._entries: OrderedDict[bytes, CachedConversation] = OrderedDict()

    def take(self, messages: Sequence[Message], tools: Sequence[Tool]) -> CachedConversation | None:
        """Remove and return the longest conversation that `messages` continue, under the same tools."""
        for digest in reversed(_digests(messages[:-1], tools)):
            if digest in self._entries:
                return self._entries.pop(digest)
        return None

    def put(self, conversation: CachedConversation, tools: Sequence[Tool]) -> None:
        """Store a conversation, and drop the least recently used ones above the bound."""
        digest = _digests(conversation.messages, tools)[-1]
        dropped = [self._entries.pop(digest)] if digest in self._entries else []
        while len(self._entries) >= PREFIX_CACHE_ENTRIES:
            dropped.append(self._entries.popitem(last=False)[1])
        for old in dropped:
            self._on_drop(old.session)
        self._entries[digest] = conversation

    def clear(self) -> None:
        """Forget everything."""
        while self._entries:
            self._on_drop(self._entries.popitem()[1].session)


def _digests(messages: Sequence[Message], tools: Sequence[Tool]) -> list[bytes]:
    """Digests of the beginnings of a conversation under these tools, the shortest first."""
    declared = [(tool.name, tool.description, tool.schema) for tool in tools]
    return context_digests(messages, blake2b(repr(declared).encode(errors="replace")).digest())[1:]


MAX_WAITING_MODEL_REQUESTS = 1024
"""Concurrent requests."""
MAX_ADAPTERS = 8
"""Adapters that are loaded at once."""


@dataclass(slots=True, kw_only=True, eq=False)
class ServedModel:
    """A model under its name."""

    name: str
    sampler: StreamingSampler
    renderer: Renderer
    max_positions: int
    """Longest context in tokens."""
    vocabulary_size: int
    """Ids are below this number."""
    parent: str = ""
    """The model that this is an adapter of."""
    prefix_cache: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        self.prefix_cache = PrefixCache(self.sampler.release)

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Encode a prompt. Raises UsageError for ids that the model does not have, and ContextFull for too many."""
        ids = tuple(self.renderer.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        if wrong := next((token for token in ids if token >= self.vocabulary_size), None):
            raise UsageError(f"prompt: {wrong} is no token id of {self.name}, which has {self.vocabulary_size}")
        return self.check_length(ids)

    def check_length(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the same ids. Raises ContextFull where no id can follow them, UsageError where there are none."""
        if not ids:
            raise UsageError("prompt: there is no token in it")
        if len(ids) >= self.max_positions:
            raise ContextFull(f"the context has {len(ids)} tokens and {self.name} reads {self.max_positions}")
        return ids


LoadAdapter = Callable[[str, Path], ServedModel]
"""Makes a model of a name and the folder of an adapter. Raises StoreError for any other folder."""


class _Load(msgspec.Struct):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class _Unload(msgspec.Struct):
    lora_name: str


class ModelAPI:
    """One model and its adapters; a request's `model` names one of them, and may be left out.

    Draws depend on the request's `seed` and the answer's number where there is a seed, else on the number of the
    request. A chat that continues an answer of this API extends its sampled ids, as long as they are cached; a seed's
    draws are the same either way. With `load_adapter`, vLLM's routes for LoRA adapters load and unload them.
    """

    def __init__(
        self,
        model: ServedModel,
        sampling: SamplingOptions | None = None,
        *,
        load_adapter: LoadAdapter | None = None,
        seed: int = 0,
    ):
        """`sampling` holds the defaults of a request's options."""
        self.models = {model.name: model}
        self._base, self._load_adapter, self._seed = model, load_adapter, seed
        self._sampling = sampling or SamplingOptions()
        self._count = self._live = 0
        self._loading = asyncio.Lock()

    async def answer(
        self, method: str, path: str, body: bytes, *, prefer: str = "", style: Style = "openai"
    ) -> HttpResponse | ResponseStream:
        """Answer an HTTP request below `/v1`; never raises for a bad request. `style` is that of errors."""
        path = path.partition("?")[0]
        if method == "GET" and path == "/models":
            cards = []
            for model in self.models.values():
                card = {"id": model.name, "object": "model", "created": 0, "owned_by": "wanderlust"}
                parent = {"parent": model.parent} if model.parent else {}
                cards.append(card | {"max_model_len": model.max_positions} | parent)
            return HttpResponse(200, msgspec.json.encode({"object": "list", "data": cards}))
        routes: dict[str, Callable[[Mapping[str, Any], str], Awaitable[HttpResponse | ResponseStream]]] = {
            "/chat/completions": self._chat,
            "/completions": self._text,
        }
        if self._load_adapter is not None:
            routes |= {"/load_lora_adapter": self._load, "/unload_lora_adapter": self._unload}
        if method != "POST" or path not in routes:
            return error_response(404, f"there is no {method} {one_line(path)} here", code="not_found")
        if self._live >= MAX_WAITING_MODEL_REQUESTS:
            return error_response(
                429, f"more than {MAX_WAITING_MODEL_REQUESTS} requests at once", code="busy", retryable=True
            )
        self._live += 1
        try:
            return await routes[path](parse_json_body(body), prefer)
        except (UsageError, ContextFull) as error:
            code = "context_length_exceeded" if isinstance(error, ContextFull) else "invalid_request_error"
            return error_response(400, str(error), code=code)
        except WanderlustError as failure:
            return error_response(500, f"{type(failure).__name__}: {failure}", code="model_failure")
        finally:
            self._live -= 1

    async def _chat(self, body: Mapping[str, Any], prefer: str) -> HttpResponse | ResponseStream:
        order, messages, tools = parse_chat_completion_request(body, self._sampling, prefer=prefer)
        model = self._resolve_model(order)
        chat = _Chat(model, order, self._number(), messages=messages, tools=tools)
        try:
            chat.open()
        except PolicyFailure as refused:  # the template's
            raise UsageError(str(refused)) from refused
        return await self._respond(model, order, [chat] * order.n)

    async def _text(self, body: Mapping[str, Any], prefer: str) -> HttpResponse | ResponseStream:
        order, prompts = parse_completion_request(body, self._sampling, prefer=prefer)
        model = self._resolve_model(order)
        texts = [_Talk(model, order, self._number(), prompt=model.ids(prompt)) for prompt in prompts]
        return await self._respond(model, order, [text for text in texts for _ in range(order.n)])

    async def _respond(
        self, model: ServedModel, order: RequestOptions, talks: Sequence[_Talk]
    ) -> HttpResponse | ResponseStream:
        chat = isinstance(talks[0], _Chat)
        wire_format = WireFormat(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{self._count}",
            model=model.name,
            options=order,
            decode=model.renderer.tokenizer.decode,
            chat=chat,
        )
        if order.stream:
            return ResponseStream(_AnswerStream(wire_format, talks, self._draw_key).write)
        choices = await _together([talk.choice(n, self._draw_key) for n, talk in enumerate(talks)])
        return HttpResponse(200, msgspec.json.encode(wire_format.whole(choices)))

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _draw_key(self, order: RequestOptions, request: int, index: int) -> int:
        """Key of an answer's draws."""
        if order.seed is not None:
            return derive_key("seed", order.seed, index)
        return derive_key(self._seed, request, index)

    def _resolve_model(self, order: RequestOptions) -> ServedModel:
        """Find the requested model. Raises UsageError for an unknown one, and for unsupported stop ids."""
        model = self.models.get(order.model or self._base.name)
        if model is None:
            raise UsageError(f"there is no model {one_line(order.model)!r}; there are {', '.join(self.models)}")
        if order.sampling.schema and not getattr(model.sampler, "takes_schema", False):
            raise UsageError(f"response_format: answers of {model.name} cannot be held to a form")
        if strange := set(order.stop_token_ids) - model.renderer.end_ids:
            raise UsageError(f"stop_token_ids: {min(strange)} does not end an answer of {model.name}: use `stop`")
        return model

    async def _load(self, body: Mapping[str, Any], _: str) -> HttpResponse:
        fields = parse_request(body, _Load, "a request to load an adapter")
        name = fields.lora_name
        async with self._loading:
            if not name or name == self._base.name or (name in self.models and not fields.load_inplace):
                raise UsageError(f"there is a model {one_line(name)!r} already: unload it first, or take another name")
            if len(self.models) - (name in self.models) > MAX_ADAPTERS:
                raise UsageError(f"{MAX_ADAPTERS} adapters are loaded, and more may not be: unload one first")
            assert self._load_adapter is not None
            self.models[name] = await asyncio.to_thread(self._load_adapter, name, Path(fields.lora_path))
        return HttpResponse(200, f"Success: the adapter {one_line(name)!r} is loaded.".encode(), "text/plain")

    async def _unload(self, body: Mapping[str, Any], _: str) -> HttpResponse:
        name = parse_request(body, _Unload, "a request to unload an adapter").lora_name
        if name not in self.models or name == self._base.name:
            return error_response(404, f"there is no adapter {one_line(name)!r}", code="not_found")
        del self.models[name]  # answers under way are finished
        return HttpResponse(200, f"Success: the adapter {one_line(name)!r} is unloaded.".encode(), "text/plain")


DrawKey = Callable[[RequestOptions, int, int], int]


class _Talk:
    """A prompt, and the parsing of answers to it."""

    def __init__(self, model: ServedModel, order: RequestOptions, request: int, *, prompt: tuple[int, ...] = ()):
        self.model, self.order, self.request, self.prompt = model, order, request, prompt
        self.tools: Sequence[DeclaredTool] = ()

    async def choice(self, index: int, draw_key: DrawKey, on_tokens: OnTokens | None = None) -> Choice:
        """Draw one answer."""
        sampled = await self.draw(draw_key(self.order, self.request, index), on_tokens)
        message = self.parse_message(sampled.ids)
        return Choice(index=index, prompt=self.prompt, sampled=sampled, message=message)

    async def draw(self, key: int, on_tokens: OnTokens | None) -> SampledTokens:
        """Sample ids, without the cache."""
        return await self.model.sampler.sample(self.prompt, self.order.sampling, key=key, on_tokens=on_tokens)

    def parse_message(self, ids: Sequence[int]) -> Message:
        """Parse ids to a message, cut before the first stop text."""
        return assistant(cut_at_stops(self.model.renderer.parse_answer(ids).content, self.order.sampling.stop))

    def streaming_text(self) -> StreamingText:
        """Make the incremental decoder of a streamed answer."""
        renderer = self.model.renderer
        return StreamingText(
            renderer.tokenizer.decode,
            ends=renderer.end_ids,
            stops=self.order.sampling.stop,
            tool_call_format=renderer.tool_call_format if self.tools else None,
        )


class _Chat(_Talk):
    """A chat; it continues a cached conversation, where there is one."""

    def __init__(
        self,
        model: ServedModel,
        order: RequestOptions,
        request: int,
        *,
        messages: Sequence[Message],
        tools: Sequence[DeclaredTool],
    ):
        super().__init__(model, order, request)
        self.messages, self.tools, self.session = tuple(messages), tools, ""

    def open(self) -> None:
        """Render the prompt. Raises UsageError and the template's PolicyFailure."""
        model, alone = self.model, self.order.n == 1
        cached = model.prefix_cache.take(self.messages, self.tools) if alone else None
        with ExitStack() as undo:
            more = None
            if cached is not None:
                undo.callback(model.sampler.release, cached.session)
                new = self.messages[len(cached.messages) :]
                more = model.renderer.extend(cached.messages, new, closed=cached.closed)
            if cached is not None and more is not None:
                self.session, self.messages = cached.session, (*cached.messages, *new)
                self.prompt = model.check_length((*cached.ids, *more))
                undo.pop_all()
            else:
                self.session = f"chat-{self.request}" if alone else ""
                self.prompt = model.check_length(model.renderer.start(self.messages, self.tools))

    async def draw(self, key: int, on_tokens: OnTokens | None) -> SampledTokens:
        """Sample ids, and cache the conversation, unless sampling fails or a stop text was cut off."""
        sampler, renderer = self.model.sampler, self.model.renderer
        with ExitStack() as undo:
            undo.callback(sampler.release, self.session)
            sampled = await sampler.sample(
                self.prompt, self.order.sampling, key=key, session=self.session, on_tokens=on_tokens
            )
            closed = sampled.ids[-1] in renderer.end_ids
            if self.session and (closed or not self.order.sampling.stop):
                messages = (*self.messages, self.parse_message(sampled.ids))
                ids = (*self.prompt, *sampled.ids)
                conversation = CachedConversation(messages=messages, ids=ids, closed=closed, session=self.session)
                self.model.prefix_cache.put(conversation, self.tools)
                undo.pop_all()
        return sampled

    def parse_message(self, ids: Sequence[int]) -> Message:
        """Parse the message and its calls; broken ones stay text, as clients know no calls without a name."""
        message, dialect = super().parse_message(ids), self.model.renderer.tool_call_format
        if not self.tools:
            return message
        return dialect.calls_as_text(dialect.parse(message.content, self.tools, turn=len(self.messages)))


class _AnswerStream:
    """Write the answers of one request while they are sampled."""

    def __init__(self, wire_format: WireFormat, talks: Sequence[_Talk], draw_key: DrawKey):
        self.wire_format, self.talks, self.draw_key = wire_format, talks, draw_key

    async def write(self, send: Send) -> None:
        """Send all events; a failure is the last one."""

        async def event(data: Any) -> None:
            await send(b"data: " + msgspec.json.encode(data) + b"\n\n")

        try:
            choices = await _together([self._one(n, talk, event) for n, talk in enumerate(self.talks)])
        except WanderlustError as failure:
            await event({"error": {"message": f"{type(failure).__name__}: {failure}", "code": "model_failure"}})
            return
        if self.wire_format.options.include_usage:
            await event(self.wire_format.ending(choices))
        await send(b"data: [DONE]\n\n")

    async def _one(self, index: int, talk: _Talk, event: Callable[[Any], Awaitable[None]]) -> Choice:
        await event(self.wire_format.opening(index, talk.prompt))
        ids, logprobs, sent = list[int](), list[float](), 0
        fresh, streaming_text = asyncio.Event(), talk.streaming_text()

        def hear(all_ids: Sequence[int], all_logprobs: Sequence[float]) -> None:
            ids[:], logprobs[:] = all_ids, all_logprobs
            fresh.set()

        drawing = asyncio.create_task(talk.choice(index, self.draw_key, hear))
        drawing.add_done_callback(lambda _: fresh.set())
        exact = self.wire_format.options.return_token_ids or self.wire_format.options.logprobs
        try:
            while not drawing.done():
                await fresh.wait()
                fresh.clear()
                text = streaming_text.advance(ids)
                if text or (exact and len(ids) > sent):
                    await event(self.wire_format.piece(index, text, (ids[sent:], logprobs[sent:])))
                    sent = len(ids)
            choice = drawing.result()
        finally:
            drawing.cancel()
        text, sampled = streaming_text.remainder(choice.message.content), choice.sampled
        if text or (exact and len(sampled.ids) > sent):
            await event(self.wire_format.piece(index, text, (sampled.ids[sent:], sampled.logprobs[sent:])))
        for chunk in self.wire_format.closing(choice):
            await event(chunk)
        return choice


async def _together(choices: Sequence[Coroutine[Any, Any, Choice]]) -> list[Choice]:
    """Run the choices concurrently; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(choice) for choice in choices]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]
