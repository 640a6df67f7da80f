"""A conversation: its messages, and the caches that have read them.

Each turn reads only what the caches have not read yet, in the chunks of a package's session
(swift_templates/H2OSessions/Conversation).
"""

from __future__ import annotations

import importlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlx.core as mx

from h2o_pack.chat.events import Stop, TextEvent, ThoughtEvent, UsageEvent
from h2o_pack.chat.model import ChatModel
from h2o_pack.chat.prompt_format import Message, PromptFormat
from h2o_pack.chat.reply_parts import Part, parts_of_reply
from h2o_pack.errors import usage_error
from h2o_pack.resolved.chat import reply, system, user
from h2o_py.cache import H2OKVCache
from h2o_py.prompts import prompt_chunks
from h2o_py.reply_text import ReplyText
from h2o_py.routing import routed

Step = int | list[int]
"""What a call of the model read: an id that it chose, or a chunk of a prompt."""
PENALIZED = 20
"""The tokens whose repetition is penalized: the default of mlx-lm and of mlx-swift-lm."""


@dataclass
class State:
    """What the caches have read, and what they are still to read.

    count: the messages that the caches have read, or that `unread` holds. steps: what made the
    caches. ended: whether the last step read the token with which the model ended its turn.
    """

    count: int = 0
    steps: list[Step] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    pinned: int = 0
    ended: bool = False

    @property
    def ids(self) -> list[int]:
        """The ids that the caches have read."""
        return [i for step in self.steps for i in (step if isinstance(step, list) else [step])]


class Conversation:
    """A conversation with a model.

    system_prompt: "" for none. seed: of the first reply; each further reply has the next one.
    temperature: instead of the model's own. max_tokens: of a reply; None for the context.
    thinking: whether the model thinks before it answers; None leaves it to the chat template.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        system_prompt: str = "",
        seed: int | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        thinking: bool | None = None,
    ) -> None:
        self.model = model
        self.think(thinking)
        self.read_as = self.format
        """The format of the last reply."""
        self.seed = secrets.randbits(31) if seed is None else seed
        self.max_tokens = max_tokens or model.context
        self._temperature = temperature
        self.replies = 0
        self.begin_again(system_prompt)

    def think(self, thinking: bool | None) -> None:  # noqa: FBT001
        """Turn thinking on or off from the next reply on; None: as the chat template does.

        Raises UserError: the chat template has no switch for it; a model that does not think
        needs none to stay so.
        """
        marks = self.model.chat.thinking
        switch = None if marks is None else marks.variable
        if switch is None and (thinking or (thinking is False and marks is not None)):
            what = "does not think" if marks is None else "cannot turn thinking on or off"
            raise usage_error(
                f"the chat template of {self.model.name} {what}",
                "Leave out --thinking, --no-thinking and /think.",
            )
        variables = {} if thinking is None or switch is None else {switch: thinking}
        self.thinking = thinking
        self.format = PromptFormat(self.model.tokenizer, self.model.chat, variables)

    def begin_again(self, system_prompt: str) -> None:
        """Forget all messages, and take a system prompt; UserError if there can be none."""
        chat = self.model.chat
        if system_prompt and chat.template and not chat.system:
            raise usage_error(
                f"the chat template of {self.model.name} takes no system prompt",
                "Leave it out.",
            )
        self.messages: list[Message] = [system(system_prompt)] if system_prompt else []
        self.state, self.caches = State(), list[Any]()

    @property
    def system_prompt(self) -> str:
        """The system prompt; "" if there is none."""
        first = self.messages[:1]
        return str(first[0]["content"]) if first and first[0]["role"] == "system" else ""

    def reply(
        self,
        message: str,
        stopped: Callable[[], bool] = lambda: False,
        on_read: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Iterator[TextEvent | ThoughtEvent | UsageEvent]:
        """Yield the reply to a message as it is generated, and last its usage.

        stopped: whether to stop, asked after each step. on_read: called with the tokens of the
        prompt that were read, and with all of them. Raises UserError: the template refuses the
        message, or it is too long; the conversation is then as it was.
        """
        begun = time.monotonic()
        self.messages.append(user(message))
        try:
            chunks, begin = self._place()
        except Exception:
            self.messages.pop()
            raise
        writing = Writing(self, begun, len(self.state.unread), len(self.state.ids))
        with routed():
            snapshot = self._read(chunks, begin, stopped, on_read)
            if self.state.unread and not stopped():
                for part in writing.parts(stopped):
                    kind = TextEvent if part.kind == "text" else ThoughtEvent
                    yield kind(text=part.text)
        self.read_as = self.format
        self.replies += 1
        fields = {"reasoning_content": writing.thoughts} if writing.thoughts else {}
        self.messages.append(reply(writing.text, **fields))
        self.state.count = len(self.messages)
        yield writing.usage()
        if snapshot is not None and writing.thoughts:
            # Later turns are without the thoughts, so the reply is read again without them.
            self.state, self.caches = snapshot
            self.state.count = len(self.messages) - 1

    def _place(self) -> tuple[list[int], int]:
        """Add the ids of the new messages to the unread ones; return the chunks to read.

        Also returns how many ids at the end only begin the reply, if its thoughts will be
        removed; otherwise 0.
        """
        chat, state = self.model.chat, self.state
        begin = 0
        if chat.thinking is not None and chat.drops_thoughts and self.thinking is not False:
            begin = self.format.reply_begin()
        if not self.caches:
            opening = self.format.opening(self.messages)
            new = State(unread=opening.ids, pinned=opening.pinned)
        else:
            stop = state.steps[-1] if state.ended and isinstance(state.steps[-1], int) else None
            following = self.format.following(
                self.messages, state.count, stop, before=self.read_as
            )
            kept = len(state.unread) - following.replaced
            unread = [*state.unread[:kept], *following.ids]
            new = State(state.count, state.steps, unread, state.pinned)
        new.count = len(self.messages)
        if not new.unread:
            raise usage_error("the message has no tokens", "Write a message.")
        if len(new.unread) > self.model.context:
            raise usage_error(
                f"the message has {len(new.unread):,} tokens, more than the "
                f"{self.model.context:,} that {self.model.name} can read",
                "Write a shorter message.",
            )
        self.caches = self.caches or self.model.make_caches(new.pinned)
        self.state = new
        read = len(new.ids)
        ends = self.model.ends(new.pinned)
        end = read + len(new.unread)
        return prompt_chunks(read, end, ends, self.model.chunk, max(1, begin)), begin

    def _read(
        self,
        chunks: Sequence[int],
        begin: int,
        stopped: Callable[[], bool],
        on_read: Callable[[int, int], None],
    ) -> tuple[State, list[Any]] | None:
        """Read the unread ids except the last one, which the first token is generated from.

        Returns the state and the caches before the ids that begin the reply, if there are such.
        """
        state, snapshot, total = self.state, None, len(self.state.unread)
        for length in [*chunks[:-1], 0]:
            if begin and len(state.unread) == begin and snapshot is None:
                before = State(0, list(state.steps), list(state.unread), state.pinned)
                snapshot = before, deepcopy(self.caches)
            if stopped() or not length:
                break
            on_read(total - len(state.unread), total)
            read(self.model.model, self.caches, state.unread[:length])
            state.steps.append(state.unread[:length])
            del state.unread[:length]
        on_read(total - len(state.unread), total)
        return snapshot

    def sampler(self) -> Callable[[Any], Any]:
        """Return mlx_lm's function that chooses the next token."""
        from mlx_lm.sample_utils import make_sampler

        own = self.model.sampling
        temperature = own.temperature if self._temperature is None else self._temperature
        return make_sampler(
            temperature, top_p=own.top_p, min_p=own.min_p, top_k=max(0, own.top_k)
        )

    def processors(self) -> list[Callable[[Any, Any], Any]]:
        """Return mlx_lm's functions that change logits, which also know the ids so far."""
        from mlx_lm.sample_utils import make_logits_processors

        before = mx.array(self.state.ids[-PENALIZED:], dtype=mx.uint32)
        own = make_logits_processors(
            repetition_penalty=self.model.sampling.repetition_penalty,
            repetition_context_size=PENALIZED,
        )
        return [partial(after, before, processor) for processor in own]

    def repeat(self) -> None:
        """Make the caches by repeating the steps of the state."""
        self.caches = self.model.make_caches(self.state.pinned)
        with routed():
            for step in self.state.steps:
                read(self.model.model, self.caches, step if isinstance(step, list) else [step])


def after(
    before: mx.array, processor: Callable[[Any, Any], Any], ids: mx.array, logits: Any
) -> Any:
    """Call a processor of logits with earlier ids too."""
    return processor(mx.concatenate([before, ids.astype(mx.uint32)]), logits)


class Writing:
    """A reply that is being written, and its figures."""

    def __init__(self, talk: Conversation, begun: float, unread: int, cached: int) -> None:
        self._talk, self._begun = talk, begun
        self._unread, self._cached = unread, cached
        self._archive_reads = archive_reads(talk.caches)
        self._first = begun
        self._generated = self._thoughts = 0
        self.text = self.thoughts = ""
        self._stop: Stop = "stopped"

    def parts(self, stopped: Callable[[], bool]) -> Iterator[Part]:
        """Generate the reply; the caches have read all but the last unread id."""
        talk, chat = self._talk, self._talk.model.chat
        state = talk.state
        decoder = ReplyText(talk.model.tokenizer, leaves_out_special=chat.thinking is None)
        is_thinking = talk.format.opens_thought(talk.messages)
        parts = parts_of_reply(chat, is_thinking=is_thinking)
        stops = set(chat.stops)
        mx.random.seed(talk.seed + talk.replies)
        generate = importlib.import_module("mlx_lm.generate")
        processors = talk.processors()
        last, state.unread = state.unread, []
        steps = generate.generate_step(
            mx.array(last),
            talk.model.model,
            max_tokens=-1,
            sampler=talk.sampler(),
            logits_processors=processors,
            prompt_cache=talk.caches,
        )
        state.steps.append(last)
        try:
            for token, _ in steps:
                self._first = self._first if self._generated else time.monotonic()
                self._generated += 1
                self._thoughts += parts.is_thinking
                state.steps.append(int(token))
                if token in stops:
                    state.ended, self._stop = True, "end"
                    break
                decoder.add_token(int(token))
                yield from self._noted(parts.read(decoder.last_segment))
                if parts.is_ended:
                    self._stop = "end"
                    break
                if self._generated == talk.max_tokens:
                    self._stop = "length"
                    break
                if stopped():
                    break
        finally:
            steps.close()
        decoder.finalize()
        if not parts.is_ended:
            yield from self._noted([*parts.read(decoder.last_segment), *parts.finish()])

    def _noted(self, parts: Sequence[Part]) -> Sequence[Part]:
        for part in parts:
            if part.kind == "text":
                self.text += part.text
            else:
                self.thoughts += part.text
        return parts

    def usage(self) -> UsageEvent:
        """Return the figures of the reply."""
        talk, now = self._talk, time.monotonic()
        caches, writing = talk.caches, now - self._first
        reads, read = archive_reads(caches), self._unread - len(talk.state.unread)
        is_fast = self._generated > 1 and writing > 0
        return UsageEvent(
            stop=self._stop,
            read_tokens=read,
            cached_tokens=self._cached,
            generated_tokens=self._generated,
            thought_tokens=self._thoughts,
            tokens_per_second=(self._generated - 1) / writing if is_fast else 0.0,
            seconds=now - self._begun,
            tokens=len(talk.state.ids),
            rows=max((rows_of(cache) for cache in members(caches)), default=0),
            cache_bytes=cache_bytes(caches),
            archive_reads=None if reads is None else reads - (self._archive_reads or 0),
            archive_bytes=archive_bytes(caches),
        )


def read(model: Any, caches: list[Any], ids: Sequence[int]) -> None:
    """Let a model read ids at once."""
    model(mx.array([list(ids)]), cache=caches)
    mx.eval([cache.state for cache in caches])


def members(caches: Sequence[Any]) -> list[Any]:
    """Return all caches, and for a list of caches its members."""
    return [member for cache in caches for member in getattr(cache, "caches", (cache,))]


def rows_of(cache: Any) -> int:
    """Return how many tokens a cache keeps; 0 for a cache without rows."""
    try:
        return int(cache.size())
    except (AttributeError, NotImplementedError):
        return 0


def evicting(caches: Sequence[Any]) -> list[H2OKVCache]:
    """Return the caches that have a bound."""
    return [cache for cache in members(caches) if isinstance(cache, H2OKVCache)]


def archive_reads(caches: Sequence[Any]) -> int | None:
    """Return how many archived rows were read; None without recall."""
    recalling = [cache for cache in evicting(caches) if cache.config.recall is not None]
    return sum(cache.archive_reads for cache in recalling) if recalling else None


def archive_bytes(caches: Sequence[Any]) -> int | None:
    """Return the bytes of all archives; None without recall."""
    archives = [a for cache in evicting(caches) if (a := cache.archive) is not None]
    return sum(int(archive.nbytes) for archive in archives) if archives else None


def cache_bytes(caches: Sequence[Any]) -> int:
    """Return the bytes of all caches, without archives."""
    return sum(int(cache.nbytes) for cache in members(caches)) - (archive_bytes(caches) or 0)
