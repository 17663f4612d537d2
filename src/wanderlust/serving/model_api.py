"""OpenAI's API in front of language models: whoever speaks it can use a model of ours, tokens included."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure, UsageError, WanderlustError, one_line
from wanderlust.openai_types import DeclaredTool, understood
from wanderlust.policies.base import Heard, Sampled, Sampling, Streaming, key_of
from wanderlust.policies.chat_template import Renderer
from wanderlust.serving.agent_api import Flow, Reply, Send, object_of, refusal
from wanderlust.serving.chat_api import ChatOrder, Order, Prompt, chat_order, text_order
from wanderlust.serving.prefix_cache import Kept, Remembered
from wanderlust.serving.streaming import Choice, Manner, Speech, cut
from wanderlust.types import Message, assistant

WAITING = 1024
"""Requests that may be under way at once."""
MOST_ADAPTERS = 8


@dataclass(slots=True, kw_only=True, eq=False)
class Served:
    """A model under its name."""

    name: str
    sampler: Streaming
    renderer: Renderer
    positions: int
    """Longest context in tokens."""
    vocabulary: int
    """Ids are below this number."""
    parent: str = ""
    """The model that this is an adapter of."""
    remembered: Remembered = field(init=False)

    def __post_init__(self) -> None:
        self.remembered = Remembered(self.sampler.release)

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt. Raises UsageError for those that the model has not, and for too many."""
        ids = tuple(self.renderer.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        if wrong := next((token for token in ids if token >= self.vocabulary), None):
            raise UsageError(f"prompt: {wrong} is no token id of {self.name}, which has {self.vocabulary}")
        return self.fitting(ids)

    def fitting(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The same ids. Raises UsageError where none could follow them."""
        if not ids:
            raise UsageError("prompt: there is no token in it")
        if len(ids) >= self.positions:
            raise UsageError(f"the context has {len(ids)} tokens and {self.name} reads {self.positions}")
        return ids


Adapt = Callable[[str, Path], Served]
"""Makes a model of a name and the folder of an adapter. Raises StoreError for what is none."""


class _Load(msgspec.Struct):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class _Unload(msgspec.Struct):
    lora_name: str


class Models:
    """One model and its adapters; a request's `model` names one of them, and may be left out.

    Draws depend on the request's `seed` and the answer's number where there is a seed, else on the number of the
    request. A chat that goes on from an answer that was given here continues its very ids, so that nothing is
    tokenized twice; the last ones are remembered, a seed's draws are the same either way.
    With `adapt` the routes that vLLM has for LoRA adapters load and unload them.
    """

    def __init__(self, model: Served, sampling: Sampling | None = None, *, adapt: Adapt | None = None, seed: int = 0):
        """`sampling` is for what a request leaves open."""
        self.models = {model.name: model}
        self._base, self._adapt, self._seed = model, adapt, seed
        self._sampling = sampling or Sampling()
        self._count = self._live = 0
        self._loading = asyncio.Lock()

    async def answer(self, method: str, path: str, body: bytes, *, prefer: str = "") -> Reply | Flow:
        """Answer an HTTP request below `/v1`; never raises for what the request says."""
        if method == "GET" and path == "/models":
            return Reply(200, msgspec.json.encode({"object": "list", "data": [*map(_card, self.models.values())]}))
        routes: dict[str, Callable[[Mapping[str, Any], str], Awaitable[Reply | Flow]]] = {
            "/chat/completions": self._chat,
            "/completions": self._text,
        }
        if self._adapt is not None:
            routes |= {"/load_lora_adapter": self._load, "/unload_lora_adapter": self._unload}
        if method != "POST" or path not in routes:
            return refusal(404, f"there is no {method} {one_line(path)} here", code="not_found")
        if self._live >= WAITING:
            return refusal(429, f"more than {WAITING} requests at once", code="busy", again=True)
        self._live += 1
        try:
            return await routes[path](object_of(body), prefer)
        except UsageError as error:
            return refusal(400, str(error), code="invalid_request_error")
        except WanderlustError as failure:
            return refusal(500, f"{type(failure).__name__}: {failure}", code="model_failure")
        finally:
            self._live -= 1

    async def _chat(self, body: Mapping[str, Any], prefer: str) -> Reply | Flow:
        asked = chat_order(body, self._sampling, prefer=prefer)
        model = self._named(asked.order)
        if asked.tools and model.renderer.dialect is None:
            raise UsageError(f"the chat template of {model.name} has no known way of calling tools: leave `tools` out")
        chat = _Chat(model, asked, self._number())
        try:
            chat.open()
        except PolicyFailure as refused:  # the template's
            raise UsageError(str(refused)) from refused
        return await self._told(model, asked.order, [chat] * asked.order.n)

    async def _text(self, body: Mapping[str, Any], prefer: str) -> Reply | Flow:
        asked = text_order(body, self._sampling, prefer=prefer)
        model = self._named(asked.order)
        texts = [_Text(model, order=asked.order, prompt=model.ids(p), request=self._number()) for p in asked.prompts]
        return await self._told(model, asked.order, [text for text in texts for _ in range(asked.order.n)])

    async def _told(self, model: Served, order: Order, talks: Sequence[_Talk]) -> Reply | Flow:
        chat = isinstance(talks[0], _Chat)
        manner = Manner(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{self._count}",
            model=model.name,
            order=order,
            decode=model.renderer.tokenizer.decode,
            chat=chat,
        )
        if order.stream:
            return Flow(_Telling(manner, talks, self._drawn).write)
        choices = await _together([talk.choice(n, self._drawn) for n, talk in enumerate(talks)])
        return Reply(200, msgspec.json.encode(manner.whole(choices)))

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _drawn(self, order: Order, request: int, index: int) -> int:
        """What keys the draws of an answer."""
        return key_of("seed", order.seed, index) if order.seed is not None else key_of(self._seed, request, index)

    def _named(self, order: Order) -> Served:
        """The model that is asked. Raises UsageError where there is none, or it cannot end where it is to."""
        model = self.models.get(order.model or self._base.name)
        if model is None:
            raise UsageError(f"there is no model {one_line(order.model)!r}; there are {', '.join(self.models)}")
        if strange := set(order.ends) - model.renderer.end_ids:
            raise UsageError(f"stop_token_ids: {min(strange)} does not end an answer of {model.name}: use `stop`")
        return model

    async def _load(self, body: Mapping[str, Any], _: str) -> Reply:
        asked = understood(body, _Load, "a request to load an adapter")
        name = asked.lora_name
        async with self._loading:
            if not name or name == self._base.name or (name in self.models and not asked.load_inplace):
                raise UsageError(f"there is a model {one_line(name)!r} already: unload it first, or take another name")
            if len(self.models) - (name in self.models) > MOST_ADAPTERS:
                raise UsageError(f"{MOST_ADAPTERS} adapters are loaded, and more may not be: unload one first")
            assert self._adapt is not None
            self.models[name] = await asyncio.to_thread(self._adapt, name, Path(asked.lora_path))
        return Reply(200, f"Success: the adapter {one_line(name)!r} is loaded.".encode(), "text/plain")

    async def _unload(self, body: Mapping[str, Any], _: str) -> Reply:
        name = understood(body, _Unload, "a request to unload an adapter").lora_name
        if name not in self.models or name == self._base.name:
            return refusal(404, f"there is no adapter {one_line(name)!r}", code="not_found")
        del self.models[name]  # answers under way are finished
        return Reply(200, f"Success: the adapter {one_line(name)!r} is unloaded.".encode(), "text/plain")


Drawn = Callable[[Order, int, int], int]


class _Talk:
    """What is read, and how an answer to it is understood."""

    def __init__(self, model: Served, order: Order, request: int):
        self.model, self.order, self.request = model, order, request
        self.prompt: tuple[int, ...] = ()
        self.tools: Sequence[DeclaredTool] = ()

    async def choice(self, index: int, drawn: Drawn, heard: Heard | None = None) -> Choice:
        """Draw one answer."""
        sampled = await self.draw(drawn(self.order, self.request, index), heard)
        message = self.understood(sampled.ids)
        return Choice(index=index, prompt=self.prompt, sampled=sampled, message=message)

    async def draw(self, key: int, heard: Heard | None) -> Sampled:
        """Ids, with nothing remembered."""
        return await self.model.sampler.sample(self.prompt, self.order.sampling, key=key, heard=heard)

    def understood(self, ids: Sequence[int]) -> Message:
        """The message that ids stand for, without a stop text and what follows it."""
        return assistant(cut(self.model.renderer.answer(ids).content, self.order.sampling.stop))

    def speech(self) -> Speech:
        """Of an answer that is listened to."""
        renderer = self.model.renderer
        return Speech(
            renderer.tokenizer.decode,
            ends=renderer.end_ids,
            stops=self.order.sampling.stop,
            dialect=renderer.dialect if self.tools else None,
        )


class _Text(_Talk):
    """A completion."""

    def __init__(self, model: Served, *, order: Order, prompt: tuple[int, ...], request: int):
        super().__init__(model, order, request)
        self.prompt = prompt


class _Chat(_Talk):
    """A chat; it goes on from a conversation that is remembered, where there is one."""

    def __init__(self, model: Served, asked: ChatOrder, request: int):
        super().__init__(model, asked.order, request)
        self.messages, self.tools = tuple(asked.messages), asked.tools
        self.session = ""

    def open(self) -> None:
        """Find out what is to be read. Raises UsageError and the template's PolicyFailure."""
        model, alone = self.model, self.order.n == 1
        kept = model.remembered.take(self.messages, self.tools) if alone else None
        with ExitStack() as undo:
            more = None
            if kept is not None:
                undo.callback(model.sampler.release, kept.session)
                new = self.messages[len(kept.messages) :]
                more = model.renderer.extend(kept.messages, new, closed=kept.closed)
            if kept is not None and more is not None:
                self.session, self.messages = kept.session, (*kept.messages, *new)
                self.prompt = model.fitting((*kept.ids, *more))
                undo.pop_all()
            else:
                self.session = f"chat-{self.request}" if alone else ""
                self.prompt = model.fitting(model.renderer.start(self.messages, self.tools))

    async def draw(self, key: int, heard: Heard | None) -> Sampled:
        """Ids; the conversation is remembered, unless something goes wrong or a stop text was cut off."""
        sampler, renderer = self.model.sampler, self.model.renderer
        with ExitStack() as undo:
            undo.callback(sampler.release, self.session)
            sampled = await sampler.sample(self.prompt, self.order.sampling, key=key, session=self.session, heard=heard)
            closed = sampled.ids[-1] in renderer.end_ids
            if self.session and (closed or not self.order.sampling.stop):
                said = (*self.messages, self.understood(sampled.ids))
                ids = (*self.prompt, *sampled.ids)
                kept = Kept(messages=said, ids=ids, closed=closed, session=self.session)
                self.model.remembered.keep(kept, self.tools)
                undo.pop_all()
        return sampled

    def understood(self, ids: Sequence[int]) -> Message:
        """The message, its calls read; broken ones stay text, as clients know no calls without a name."""
        said, dialect = super().understood(ids), self.model.renderer.dialect
        if not self.tools or dialect is None:
            return said
        return dialect.plain(dialect.read(said.content, self.tools, turn=len(self.messages)))


class _Telling:
    """Writes the answers of one request while they are sampled."""

    def __init__(self, manner: Manner, talks: Sequence[_Talk], drawn: Drawn):
        self.manner, self.talks, self.drawn = manner, talks, drawn

    async def write(self, send: Send) -> None:
        """Send it all; a failure is the last event."""

        async def event(data: Any) -> None:
            await send(b"data: " + msgspec.json.encode(data) + b"\n\n")

        try:
            choices = await _together([self._one(n, talk, event) for n, talk in enumerate(self.talks)])
        except WanderlustError as failure:
            await event({"error": {"message": f"{type(failure).__name__}: {failure}", "code": "model_failure"}})
            return
        if self.manner.order.usage:
            await event(self.manner.ending(choices))
        await send(b"data: [DONE]\n\n")

    async def _one(self, index: int, talk: _Talk, event: Callable[[Any], Awaitable[None]]) -> Choice:
        await event(self.manner.opening(index, talk.prompt))
        ids, logprobs, fresh, speech, told = list[int](), list[float](), asyncio.Event(), talk.speech(), 0

        def hear(all_ids: Sequence[int], all_logprobs: Sequence[float]) -> None:
            ids[:], logprobs[:] = all_ids, all_logprobs
            fresh.set()

        drawing = asyncio.create_task(talk.choice(index, self.drawn, hear))
        drawing.add_done_callback(lambda _: fresh.set())
        exact = self.manner.order.ids or self.manner.order.logprobs
        try:
            while not drawing.done():
                await fresh.wait()
                fresh.clear()
                text = speech.more(ids)
                if text or (exact and len(ids) > told):
                    await event(self.manner.piece(index, text, (ids[told:], logprobs[told:])))
                    told = len(ids)
            choice = drawing.result()
        finally:
            drawing.cancel()
        text, sampled = speech.rest(choice.message.content), choice.sampled
        if text or (exact and len(sampled.ids) > told):
            await event(self.manner.piece(index, text, (sampled.ids[told:], sampled.logprobs[told:])))
        for chunk in self.manner.closing(choice):
            await event(chunk)
        return choice


async def _together(choices: Sequence[Awaitable[Choice]]) -> list[Choice]:
    """All of them; the first failure ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_awaited(choice)) for choice in choices]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]


async def _awaited(choice: Awaitable[Choice]) -> Choice:
    return await choice


def _card(model: Served) -> dict[str, Any]:
    shown = {"id": model.name, "object": "model", "created": 0, "owned_by": "wanderlust"}
    return shown | {"max_model_len": model.positions} | ({"parent": model.parent} if model.parent else {})
