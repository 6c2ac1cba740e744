/**
 * The send buffer of a session: queued pieces that wait to be sent, and unacknowledged chunks that are kept for a retry
 * until their utterance has ended. A piece becomes a numbered chunk when it is first sent. Pure: no socket, no clock;
 * time is an argument.
 */

/** @typedef {import("./frames.js").Chunk} Chunk */

const PIECE_MS = 100;
/** Under SLOW_DOWN: one message per interval, with up to one interval of audio. */
const SLOW_INTERVAL_MS = 500;
const BYTES_PER_SAMPLE = 2;
/** Four minutes of audio. */
const BYTES_MAX = 8 * 1024 * 1024;
/** Accounted for each piece beside its audio, so that empty pieces are bounded too. */
const PIECE_OVERHEAD_BYTES = 128;
/** A backlog is sent in bursts: the number of chunks in one, and the interval between two. */
const BURST_CHUNKS_MAX = 10;
const BURST_INTERVAL_MS = 100;
/** How long a `backpressure` message applies: without `resume_after_ms`, and at most. */
const BACKPRESSURE_MS_DEFAULT = 500;
const BACKPRESSURE_MS_MAX = 60_000;

/** @typedef {{isFinal: boolean, audio: Uint8Array, timestampMs: number}} Piece */
/** @typedef {Chunk & {needsRetry: boolean}} UnackedChunk */

/** Buffers all audio of one session from `add` until its utterance has ended. */
export class SendBuffer {
  /** @type {Uint8Array[]} less than a piece */
  #partial = [];
  #partialBytes = 0;
  #utteranceOpen = false;
  /** @type {Piece[]} */
  #queue = [];
  /** @type {UnackedChunk[]} in order of seq, without gaps */
  #unacked = [];
  #bytes = 0;
  #nextSeq = 0;
  /** The last chunk that was evicted before its utterance had ended. */
  #evictedSeq = -1;
  #pausedUntilMs = 0;
  #slowUntilMs = 0;
  #nextBurstMs = 0;
  #bytesMax;
  #pieceBytes;

  /** @param {{sampleRate?: number, bytesMax?: number}} [options] */
  constructor({ sampleRate = 16_000, bytesMax = BYTES_MAX } = {}) {
    this.#pieceBytes = Math.round((sampleRate * PIECE_MS) / 1_000) * BYTES_PER_SAMPLE;
    this.#bytesMax = bytesMax;
  }

  /** Bytes of queued pieces and unacknowledged chunks, including their overhead. */
  get bytes() {
    return this.#bytes;
  }

  /**
   * False if that much audio does not fit until queued pieces are sent. Unacknowledged chunks are evicted for it,
   * except those that await a retry.
   * @param {number} bytes
   */
  hasCapacityFor(bytes) {
    let neededBytes = this.#bytes + this.#partialBytes + bytes;
    for (const chunk of this.#unacked) {
      if (neededBytes <= this.#bytesMax || chunk.needsRetry) break;
      neededBytes -= costOf(chunk);
    }
    return neededBytes <= this.#bytesMax;
  }

  // --- input -------------------------------------------------------------------------------------

  /**
   * Buffer more audio; false if it does not fit.
   * @param {Uint8Array} bytes  PCM16; the buffer owns it from now on
   * @param {number} timestampMs  the wall clock
   */
  add(bytes, timestampMs) {
    if (!this.hasCapacityFor(bytes.length)) return false;
    if (bytes.length > 0) this.#utteranceOpen = true;
    let rest = bytes;
    while (this.#partialBytes + rest.length >= this.#pieceBytes) {
      const missing = this.#pieceBytes - this.#partialBytes;
      this.#append(rest.subarray(0, missing));
      rest = rest.subarray(missing);
      this.#enqueue(false, timestampMs);
    }
    this.#append(rest);
    return true;
  }

  /**
   * Finalize the utterance; no effect if it has no audio.
   * @param {number} timestampMs
   */
  endUtterance(timestampMs) {
    if (!this.#utteranceOpen) return;
    this.#enqueue(true, timestampMs);
    this.#utteranceOpen = false;
  }

  /** @param {Uint8Array} bytes */
  #append(bytes) {
    if (bytes.length === 0) return;
    this.#partial.push(bytes);
    this.#partialBytes += bytes.length;
  }

  /**
   * Queue the partial piece. Beyond `bytesMax` the oldest unacknowledged chunks are evicted.
   * @param {boolean} isFinal
   * @param {number} timestampMs
   */
  #enqueue(isFinal, timestampMs) {
    const piece = { isFinal, audio: concat(this.#partial), timestampMs };
    this.#partial = [];
    this.#partialBytes = 0;
    this.#queue.push(piece);
    this.#bytes += costOf(piece);
    while (this.#bytes > this.#bytesMax && this.#unacked.length > 0 && !this.#unacked[0].needsRetry) {
      this.#evictedSeq = this.#dropFirst().seq;
    }
  }

  #dropFirst() {
    const first = /** @type {UnackedChunk} */ (this.#unacked.shift());
    this.#bytes -= costOf(first);
    return first;
  }

  // --- output ------------------------------------------------------------------------------------

  /**
   * Take the chunks that are due, retries first. `waitMs` is the time until the next are due; null if none is left.
   * @param {number} nowMs
   * @returns {{chunks: Chunk[], waitMs: number | null}}
   */
  takeDue(nowMs) {
    const notBeforeMs = Math.max(this.#pausedUntilMs, this.#nextBurstMs);
    const isSlow = nowMs < this.#slowUntilMs;
    const chunksMax = isSlow ? 1 : BURST_CHUNKS_MAX;
    const chunks = [];
    if (nowMs >= notBeforeMs) {
      const retries = this.#unacked.filter((chunk) => chunk.needsRetry).slice(0, chunksMax);
      for (const chunk of retries) chunk.needsRetry = false;
      chunks.push(...retries);
      while (this.#queue.length > 0 && chunks.length < chunksMax) chunks.push(this.#takeChunk(isSlow));
      if (chunks.length > 0) {
        this.#nextBurstMs = nowMs + (isSlow ? SLOW_INTERVAL_MS : this.#isAllSent ? 0 : BURST_INTERVAL_MS);
      }
    }
    const waitMs = Math.max(this.#pausedUntilMs, this.#nextBurstMs) - nowMs;
    return { chunks, waitMs: this.#isAllSent ? null : waitMs };
  }

  get #isAllSent() {
    return this.#queue.length === 0 && !this.#unacked.some((chunk) => chunk.needsRetry);
  }

  /**
   * Number the next queued piece as a chunk. Under SLOW_DOWN several pieces of one utterance become one chunk.
   * @param {boolean} isSlow
   */
  #takeChunk(isSlow) {
    const bytesMax = isSlow ? (this.#pieceBytes * SLOW_INTERVAL_MS) / PIECE_MS : 0;
    const pieces = [];
    let isFinal = false;
    let bytes = 0;
    do {
      const piece = /** @type {Piece} */ (this.#queue.shift());
      this.#bytes -= costOf(piece);
      pieces.push(piece);
      isFinal = piece.isFinal;
      bytes += piece.audio.length;
    } while (this.#queue.length > 0 && !isFinal && bytes + this.#queue[0].audio.length <= bytesMax);
    const audio = concat(pieces.map((piece) => piece.audio));
    const chunk = { seq: this.#nextSeq++, isFinal, audio, timestampMs: pieces[0].timestampMs, needsRetry: false };
    this.#unacked.push(chunk);
    this.#bytes += costOf(chunk);
    return chunk;
  }

  // --- flow control ------------------------------------------------------------------------------

  /**
   * `backpressure`: SLOW_DOWN makes chunks rarer and larger, PAUSE and BUSY suspend them.
   * @param {string} action
   * @param {number | undefined} resumeAfterMs
   * @param {number} nowMs
   */
  onBackpressure(action, resumeAfterMs, nowMs) {
    const untilMs = nowMs + Math.min(resumeAfterMs ?? BACKPRESSURE_MS_DEFAULT, BACKPRESSURE_MS_MAX);
    if (action === "SLOW_DOWN") this.#slowUntilMs = Math.max(this.#slowUntilMs, untilMs);
    else this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
  }

  /**
   * The mesh rejected a chunk (SLOW_DOWN). It is retried before any later chunk, after the pause that the mesh
   * requested, or the default one.
   * @param {number} seq
   * @param {number} nowMs
   */
  onRejected(seq, nowMs) {
    const chunk = this.#unacked[seq - (this.#unacked[0]?.seq ?? 0)];
    if (!chunk) return;
    chunk.needsRetry = true;
    if (this.#pausedUntilMs <= nowMs) this.onBackpressure("BUSY", undefined, nowMs);
  }

  #resetFlowControl() {
    this.#pausedUntilMs = this.#slowUntilMs = this.#nextBurstMs = 0;
  }

  // --- acknowledgement and resume ----------------------------------------------------------------

  /**
   * Cumulative acknowledgement: the utterances up to that chunk have ended.
   * @param {number} lastSeq
   */
  acknowledge(lastSeq) {
    while (this.#unacked.length > 0 && this.#unacked[0].seq <= lastSeq) this.#dropFirst();
  }

  /**
   * The session was resumed: chunks from that one on are retried. False if some of them were evicted.
   * @param {number} resendFromSeq
   */
  onResumed(resendFromSeq) {
    this.#resetFlowControl();
    for (const chunk of this.#unacked) chunk.needsRetry = chunk.seq >= resendFromSeq;
    return this.#evictedSeq < resendFromSeq;
  }

  /** A new session replaces the lost one: unacknowledged chunks are queued again and numbered from 0. */
  onRestarted() {
    this.#resetFlowControl();
    this.#queue.unshift(...this.#unacked.map(({ isFinal, audio, timestampMs }) => ({ isFinal, audio, timestampMs })));
    this.#unacked = [];
    this.#nextSeq = 0;
    this.#evictedSeq = -1;
  }
}

/** @param {Piece} piece */
function costOf(piece) {
  return piece.audio.length + PIECE_OVERHEAD_BYTES;
}

/**
 * @param {Uint8Array[]} parts
 * @returns {Uint8Array}
 */
function concat(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
