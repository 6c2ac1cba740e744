/**
 * What a session has said: pieces that wait to be sent, and chunks that were sent and are kept until their utterance
 * has ended. A piece gets its number when it is first sent. Pure: no sockets and no clock; time is an argument.
 */

/** @typedef {import("./frames.js").Chunk} Chunk */

const PIECE_MS = 100;
/** While the mesh asks for less: one message in so much time, which holds as much sound. */
const SLOW_MS = 500;
const BYTES_PER_SAMPLE = 2;
/** Four minutes of speech. */
const KEPT_BYTES_MAX = 8 * 1024 * 1024;
/** What a piece costs beside its audio, so that empty ones are bounded too. */
const PIECE_BYTES = 128;
/** When much is to be sent, so many chunks at once, and so long until the next ones. */
const CHUNKS_PER_TURN = 10;
const TURN_MS = 100;
/** How long the mesh's wish counts if it does not say, and at most. */
const WISH_MS_DEFAULT = 500;
const WISH_MS_MAX = 60_000;

/** @typedef {{isFinal: boolean, audio: Uint8Array, timestampMs: number}} Piece */
/** @typedef {Chunk & {again: boolean}} KeptChunk  again: it is to be sent once more */

/** All audio of one session that may still be needed. */
export class SpokenAudio {
  /** @type {Uint8Array[]} not yet enough for a piece */
  #open = [];
  #openBytes = 0;
  #utteranceOpen = false;
  /** @type {Piece[]} */
  #queue = [];
  /** @type {KeptChunk[]} in order of seq, without holes */
  #kept = [];
  #keptBytes = 0;
  #nextSeq = 0;
  /** All up to this one are no longer kept though their utterance has not ended. */
  #forgottenSeq = -1;
  #silentUntilMs = 0;
  #slowUntilMs = 0;
  #nextTurnMs = 0;
  #keptBytesMax;
  #pieceBytes;

  /** @param {{sampleRate?: number, keptBytesMax?: number}} [options] */
  constructor({ sampleRate = 16_000, keptBytesMax = KEPT_BYTES_MAX } = {}) {
    this.#pieceBytes = Math.round((sampleRate * PIECE_MS) / 1_000) * BYTES_PER_SAMPLE;
    this.#keptBytesMax = keptBytesMax;
  }

  /** Bytes that wait or are kept, with what each piece costs. */
  get keptBytes() {
    return this.#keptBytes;
  }

  /**
   * False while so many bytes are not taken: what waits must be sent first. What was sent gives way to what was not.
   * @param {number} bytes
   */
  hasRoomFor(bytes) {
    let neededBytes = this.#keptBytes + this.#openBytes + bytes;
    for (const chunk of this.#kept) {
      if (neededBytes <= this.#keptBytesMax || chunk.again) break;
      neededBytes -= costOf(chunk);
    }
    return neededBytes <= this.#keptBytesMax;
  }

  // --- speaking ----------------------------------------------------------------------------------

  /**
   * Take more audio; false if there is no room for it.
   * @param {Uint8Array} bytes  PCM16; the caller leaves it alone from now on
   * @param {number} timestampMs  the wall clock
   */
  add(bytes, timestampMs) {
    if (!this.hasRoomFor(bytes.length)) return false;
    if (bytes.length > 0) this.#utteranceOpen = true;
    let rest = bytes;
    while (this.#openBytes + rest.length >= this.#pieceBytes) {
      const missing = this.#pieceBytes - this.#openBytes;
      this.#hold(rest.subarray(0, missing));
      rest = rest.subarray(missing);
      this.#cut(false, timestampMs);
    }
    this.#hold(rest);
    return true;
  }

  /**
   * End the utterance; nothing happens if nothing was said since the last end.
   * @param {number} timestampMs
   */
  endUtterance(timestampMs) {
    if (!this.#utteranceOpen) return;
    this.#cut(true, timestampMs);
    this.#utteranceOpen = false;
  }

  /** @param {Uint8Array} bytes */
  #hold(bytes) {
    if (bytes.length === 0) return;
    this.#open.push(bytes);
    this.#openBytes += bytes.length;
  }

  /**
   * @param {boolean} isFinal
   * @param {number} timestampMs
   */
  #cut(isFinal, timestampMs) {
    const piece = { isFinal, audio: joined(this.#open), timestampMs };
    this.#open = [];
    this.#openBytes = 0;
    this.#queue.push(piece);
    this.#keptBytes += costOf(piece);
    while (this.#keptBytes > this.#keptBytesMax && this.#kept.length > 0 && !this.#kept[0].again) {
      this.#forgottenSeq = this.#dropFirst().seq;
    }
  }

  #dropFirst() {
    const first = /** @type {KeptChunk} */ (this.#kept.shift());
    this.#keptBytes -= costOf(first);
    return first;
  }

  // --- sending -----------------------------------------------------------------------------------

  /**
   * The chunks to send now, and how long to wait before asking again; null: until there is more.
   * @param {number} nowMs
   * @returns {{chunks: Chunk[], waitMs: number | null}}
   */
  due(nowMs) {
    const notBeforeMs = Math.max(this.#silentUntilMs, this.#nextTurnMs);
    const slow = nowMs < this.#slowUntilMs;
    const chunks = [];
    if (nowMs >= notBeforeMs) {
      const again = this.#kept.filter((chunk) => chunk.again).slice(0, slow ? 1 : CHUNKS_PER_TURN);
      for (const chunk of again) chunk.again = false;
      chunks.push(...again);
      while (this.#queue.length > 0 && chunks.length < (slow ? 1 : CHUNKS_PER_TURN)) chunks.push(this.#number(slow));
      if (chunks.length > 0) this.#nextTurnMs = nowMs + (slow ? SLOW_MS : this.#isSaid ? 0 : TURN_MS);
    }
    const waitMs = Math.max(this.#silentUntilMs, this.#nextTurnMs) - nowMs;
    return { chunks, waitMs: this.#isSaid ? null : waitMs };
  }

  get #isSaid() {
    return this.#queue.length === 0 && !this.#kept.some((chunk) => chunk.again);
  }

  /**
   * The next chunk, of one piece; of several of the same utterance while the mesh is slow.
   * @param {boolean} slow
   */
  #number(slow) {
    const bytesMax = slow ? (this.#pieceBytes * SLOW_MS) / PIECE_MS : 0;
    const pieces = [];
    let isFinal = false;
    let bytes = 0;
    do {
      const piece = /** @type {Piece} */ (this.#queue.shift());
      this.#keptBytes -= costOf(piece);
      pieces.push(piece);
      isFinal = piece.isFinal;
      bytes += piece.audio.length;
    } while (this.#queue.length > 0 && !isFinal && bytes + this.#queue[0].audio.length <= bytesMax);
    const audio = joined(pieces.map((piece) => piece.audio));
    const chunk = { seq: this.#nextSeq++, isFinal, audio, timestampMs: pieces[0].timestampMs, again: false };
    this.#kept.push(chunk);
    this.#keptBytes += costOf(chunk);
    return chunk;
  }

  /**
   * `backpressure` of the mesh: SLOW_DOWN makes chunks rarer and larger for a while, PAUSE and BUSY stop them.
   * @param {string} action
   * @param {number | undefined} resumeAfterMs
   * @param {number} nowMs
   */
  onBackpressure(action, resumeAfterMs, nowMs) {
    const untilMs = nowMs + Math.min(resumeAfterMs ?? WISH_MS_DEFAULT, WISH_MS_MAX);
    if (action === "SLOW_DOWN") this.#slowUntilMs = Math.max(this.#slowUntilMs, untilMs);
    else this.#silentUntilMs = Math.max(this.#silentUntilMs, untilMs);
  }

  /**
   * The mesh did not take that chunk: it is sent again, before any later one, after the pause that the mesh asks for.
   * @param {number} seq
   * @param {number} nowMs
   */
  onRefused(seq, nowMs) {
    const chunk = this.#kept[seq - (this.#kept[0]?.seq ?? 0)];
    if (!chunk) return;
    chunk.again = true;
    if (this.#silentUntilMs <= nowMs) this.onBackpressure("BUSY", undefined, nowMs);
  }

  // --- ends and new beginnings -------------------------------------------------------------------

  /**
   * The utterance that ends with that chunk has ended.
   * @param {number} lastSeq
   */
  onEnded(lastSeq) {
    while (this.#kept.length > 0 && this.#kept[0].seq <= lastSeq) this.#dropFirst();
  }

  /**
   * The session goes on at an edge that has nothing from that chunk on; false if some of it is no longer here.
   * @param {number} resendFromSeq
   */
  onResumed(resendFromSeq) {
    this.#forgetPace();
    for (const chunk of this.#kept) chunk.again = chunk.seq >= resendFromSeq;
    return this.#forgottenSeq < resendFromSeq;
  }

  /** Another session takes its place: what has not ended is said again there, with numbers from 0 on. */
  onRestarted() {
    this.#forgetPace();
    this.#queue.unshift(...this.#kept.map(({ isFinal, audio, timestampMs }) => ({ isFinal, audio, timestampMs })));
    this.#kept = [];
    this.#nextSeq = 0;
    this.#forgottenSeq = -1;
  }

  #forgetPace() {
    this.#silentUntilMs = this.#slowUntilMs = this.#nextTurnMs = 0;
  }
}

/** @param {Piece} piece */
function costOf(piece) {
  return piece.audio.length + PIECE_BYTES;
}

/**
 * @param {Uint8Array[]} parts
 * @returns {Uint8Array}
 */
function joined(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
