"""Groups: which utterances belong together, and the texts of a group so far. Pure.

An utterance that follows closely joins the group of the one before, and its node gets the group's texts as context.

"Closely" is measured from the group's anchor to the beginning of the utterance: at most window_ms. The anchor is the
latest sign of life of the group: its creation, a part that joined, a result, the end of playing one. While a result is
played the group is open, so its end is what counts then, as in the original system.

Why not from the creation until something was played, as there: the window (2 s) is shorter than the pause that ends an
utterance (3 s). Without speech output each utterance would be a group of its own, and context would never be used. For
the same reason the utterance counts from where it began: it joins only after it was spoken and after its pause, which
alone is longer than the window. With both, speech that was only cut for its length stays together, and so does what is
said up to window_ms after the cut (5 s of silence), or after its result was shown or played.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.config.sessions import SpeechConfig


class GroupLimits(NamedTuple):
    """The bounds of a group, from the configuration."""

    window_ms: int
    parts_max: int
    context_chars_max: int
    #: Timeout of playing, for a client that never reports its end.
    playing_ms_max: int

    @classmethod
    def of(cls, config: SpeechConfig) -> GroupLimits:
        """From the configuration."""
        return cls(config.group_window_ms, config.group_parts_max, config.context_chars_max, config.playing_ms_max)


class GroupPosition(NamedTuple):
    """The position of an utterance in its group; context_text "" = none."""

    group_id: str
    part_index: int
    context_text: str


class _Part(NamedTuple):
    text_asr: str
    text_translated: str
    #: Oldest first; an empty text has no line.
    lines: list[str]
    #: Characters of all lines.
    chars: int


_NO_TEXTS: Final = _Part("", "", [], 0)


class Groups:
    """The groups of one session, of which the latest may be open."""

    __slots__ = (
        "_anchor_ms",
        "_chars",
        "_context",
        "_group_id",
        "_limits",
        "_newest",
        "_next_part",
        "_parts",
        "_playing_ms",
        "_session_id",
        "_wall_ms",
    )

    def __init__(self, session_id: str, limits: GroupLimits) -> None:
        self._session_id = session_id
        self._limits = limits
        #: The open group; "" = none. Results of earlier groups are ignored.
        self._group_id = ""
        self._next_part = 0
        #: Texts of results, by part_index and in that order.
        self._parts: dict[int, _Part] = {}
        self._newest = -1
        #: Characters of all their lines.
        self._chars = 0
        #: The latest lines of these, as `_latest_lines` computes them at each change.
        self._context = ""
        self._anchor_ms = 0
        #: Since when the client plays a result of the group; None = it does not.
        self._playing_ms: int | None = None
        #: That of the latest group id.
        self._wall_ms = -1

    def join(self, wall_ms: int, now_ms: int, began_ms: int | None = None) -> GroupPosition:
        """The position of an utterance, whose speech began then, and its context. Called before it is dispatched."""
        if self._playing_ms is not None:
            self._time_out_playing(self._playing_ms, now_ms)
        silence_ms = (now_ms if began_ms is None else began_ms) - self._anchor_ms
        if not self._group_id or (self._playing_ms is None and silence_ms > self._limits.window_ms):
            self._begin(wall_ms)
        self._anchor_ms = now_ms
        position = GroupPosition(self._group_id, self._next_part, self._context)
        self._next_part += 1
        return position

    def add_texts(self, group_id: str, part_index: int, text_asr: str, text_translated: str, now_ms: int) -> None:
        """The result of a part; a text may be empty. Earlier texts are not replaced."""
        if not self._group_id or group_id != self._group_id or not 0 <= part_index < self._next_part:
            return
        self._anchor_ms = max(self._anchor_ms, now_ms)
        known = self._parts.get(part_index, _NO_TEXTS)
        asr = known.text_asr or self._trimmed(text_asr)
        translated = known.text_translated or self._trimmed(text_translated)
        lines = [f"User: {asr}\n"] if asr else []
        if translated:
            lines.append(f"Target: {translated}\n")
        if lines:
            self._add(part_index, _Part(asr, translated, lines, sum(map(len, lines))))

    def playing(self, group_id: str, playing: bool, now_ms: int) -> None:
        """The client began or ended to play a result of that group."""
        if not self._group_id or group_id != self._group_id:
            return
        if not playing:
            self._anchor_ms = max(self._anchor_ms, now_ms)
        self._playing_ms = now_ms if playing else None

    def close(self) -> None:
        """End the open group; the next utterance begins another."""
        self._group_id = ""
        self._next_part = 0
        self._playing_ms = None
        self._parts = {}
        self._newest = -1
        self._chars = 0
        self._context = ""

    def check(self) -> None:
        """Assert the invariants; tests call it after each step."""
        limits = self._limits
        assert len(self._parts) <= limits.parts_max
        assert all(0 <= index < self._next_part for index in self._parts)
        assert self._context == self._latest_lines() and len(self._context) <= limits.context_chars_max
        assert list(self._parts) == sorted(self._parts) and self._newest == max(self._parts, default=-1)
        chars = [len("".join(part.lines)) for part in self._parts.values()]
        assert self._chars == sum(chars)
        assert sum(chars[1:]) < limits.context_chars_max, "no part is kept that the context cannot show"
        assert self._group_id or not (self._parts or self._next_part or self._playing_ms)

    # --- inside ---------------------------------------------------------------------------------------

    def _time_out_playing(self, since_ms: int, now_ms: int) -> None:
        """End a playing that has lasted too long, as of its timeout."""
        if now_ms - since_ms > self._limits.playing_ms_max:
            self._anchor_ms = max(self._anchor_ms, since_ms + self._limits.playing_ms_max)
            self._playing_ms = None

    def _begin(self, wall_ms: int) -> None:
        self.close()
        # Two groups of one millisecond, or a clock that was set back, must not share an id.
        self._wall_ms = max(wall_ms, self._wall_ms + 1)
        self._group_id = f"group_{self._session_id}_{self._wall_ms}"

    def _add(self, part_index: int, part: _Part) -> None:
        if part_index > self._newest and self._shift(part_index, part):
            return
        self._parts[part_index] = part
        self._parts = dict(sorted(self._parts.items()))
        self._newest = max(self._newest, part_index)
        self._evict_oldest()
        self._context = self._latest_lines()

    def _shift(self, part_index: int, part: _Part) -> bool:
        """Add the newest part, and evict the oldest one beyond `parts_max`. False if the context does not show all
        parts, before and after: then what it shows must be found anew."""
        parts, context, limits = self._parts, self._context, self._limits
        oldest = next(iter(parts)) if len(parts) == limits.parts_max else None
        left = 0 if oldest is None else parts[oldest].chars
        if len(context) != self._chars or len(context) - left + part.chars > limits.context_chars_max:
            return False
        if oldest is not None:
            del parts[oldest]
        parts[part_index] = part
        self._newest = part_index
        self._context = context[left:] + "".join(part.lines)
        self._chars = len(self._context)
        return True

    def _trimmed(self, text: str) -> str:
        """The text on one line, so that it cannot imitate another part; at most the end that fits into a context."""
        return " ".join(text.split())[-self._limits.context_chars_max :]

    def _evict_oldest(self) -> None:
        """Evict the oldest parts beyond `parts_max` or the size of the context.

        The part that exceeds the context stays, though it is shown in part or not at all: so nothing older fits.
        """
        chars = kept = 0
        for index, part in reversed(list(self._parts.items())):
            if kept == self._limits.parts_max or chars >= self._limits.context_chars_max:
                del self._parts[index]
            else:
                kept += 1
                chars += part.chars
        self._chars = chars

    def _latest_lines(self) -> str:
        """The latest lines that fit; if not even one does, the end of the latest."""
        lines = [line for part in self._parts.values() for line in part.lines]
        chars_max = self._limits.context_chars_max
        if lines and len(lines[-1]) > chars_max:
            return lines[-1][-chars_max:]
        left, first = chars_max, len(lines)
        while first and len(lines[first - 1]) <= left:
            first -= 1
            left -= len(lines[first])
        return "".join(lines[first:])
