"""A client that streams to a `Segmenter`, with a clock that only the test moves."""

from __future__ import annotations

from edge.audio.core.reorder import Chunk
from edge.audio.core.segment import Segment, SegmentLimits, SegmentStarted
from edge.audio.core.segmenter import Segmenter
from mesh.config.sessions import SpeechConfig

LIMITS = SegmentLimits.of(SpeechConfig())
RATE = 16_000


def sound(ms: int, mark: int = 1, audio_format: str = "pcm16") -> bytes:
    """Audio of `ms`, all of one byte, so that a test can see where it went."""
    if audio_format == "opus":
        return (b"\x03\x00" + bytes([mark]) * 3) * (ms // 20)
    return bytes([mark]) * (ms * RATE // 1_000 * 2)


class Talk:
    """One session. Each chunk gets the next seq by default; invariants are checked after each step."""

    def __init__(self, audio_format: str = "pcm16", seq: int = 0, next_seq: int | None = None, **limits: int) -> None:
        self.audio_format = audio_format
        self.segments = Segmenter("s-1", audio_format, RATE, LIMITS._replace(**limits), next_seq=next_seq)
        self.now = 1_000_000
        self.seq = seq
        self.told: list[SegmentStarted | Segment] = []

    def chunk(
        self, audio: bytes = b"", final: bool = False, seq: int | None = None, client: int | None = None
    ) -> list[SegmentStarted | Segment]:
        """Send a chunk; its effects."""
        if seq is None:
            seq, self.seq = self.seq, self.seq + 1
        try:
            return self._keep(self.segments.on_chunk(Chunk(seq, audio, final, client), self.now))
        finally:
            self.segments.check()

    def say(
        self, ms: int, mark: int = 1, final: bool = False, client: int | None = None
    ) -> list[SegmentStarted | Segment]:
        """Send audio of `ms`."""
        return self.chunk(sound(ms, mark, self.audio_format), final, client=client)

    def wait(self, ms: int) -> list[SegmentStarted | Segment]:
        """Advance the clock by `ms`, and tick whenever something is due."""
        end, made = self.now + ms, []
        while (due := self.segments.next_due_ms) is not None and due <= end:
            self.now = max(self.now, due)
            made += self.tick()
            after = self.segments.next_due_ms
            assert after is None or after > self.now, "nothing that was due may be left"
        self.now = end
        return made

    def tick(self) -> list[SegmentStarted | Segment]:
        """Tick, due or not."""
        return self._keep(self.segments.tick(self.now))

    def play(self, playing: bool) -> None:
        """The client begins to play a result, or has finished."""
        self.segments.on_playing(playing, self.now)
        self.segments.check()

    def close(self) -> list[SegmentStarted | Segment]:
        """End the session."""
        made = self._keep(self.segments.close(self.now))
        assert self.segments.next_due_ms is None, "no audio is left"
        return made

    @property
    def cuts(self) -> list[Segment]:
        """All utterances so far."""
        return [one for one in self.told if isinstance(one, Segment)]

    @property
    def heard(self) -> list[bytes]:
        """The audio of all utterances so far."""
        return [cut.audio for cut in self.cuts]

    def _keep(self, made: list[SegmentStarted | Segment]) -> list[SegmentStarted | Segment]:
        self.segments.check()
        self.told += made
        return made
