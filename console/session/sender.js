/**
 * Sends what a session says: in order, as fast as the mesh wishes and the socket takes it, on this connection or the
 * next. What is sent when, `SpokenAudio` decides; here are the clocks and the socket.
 */

import { News } from "./signal.js";
import { SpokenAudio } from "./send-buffer.js";
import { LinguaError } from "./errors.js";
import { binaryFrame, chunkMessage } from "./frames.js";

/** Bytes that may wait inside the socket; beyond, chunks wait here. */
const BUFFERED_BYTES_MAX = 1024 * 1024;
const BUFFERED_WAIT_MS = 50;

/** The voice of one session. */
export class Sender {
  #connection;
  #order;
  #audio;
  #useBinaryFrames = false;
  #sent = new News();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #nextTurn;

  /**
   * @param {import("./connection.js").Connection} connection
   * @param {import("./results.js").ResultOrder} order  knows the session's id
   * @param {{sampleRate?: number, keptBytesMax?: number}} options
   */
  constructor(connection, order, options) {
    this.#connection = connection;
    this.#order = order;
    this.#audio = new SpokenAudio(options);
  }

  // --- speaking ----------------------------------------------------------------------------------

  /**
   * `SLOW_DOWN` if too much waits already.
   * @param {Int16Array | Uint8Array} audio
   */
  say(audio) {
    if (!this.#audio.add(bytesOf(audio), Date.now())) {
      throw new LinguaError("SLOW_DOWN", `${this.#audio.keptBytes} bytes of audio wait to be sent`);
    }
    this.send();
  }

  endUtterance() {
    this.#audio.endUtterance(Date.now());
    this.send();
  }

  /**
   * Resolves when so much more can be said, or never will.
   * @param {number} bytes
   */
  async roomFor(bytes) {
    while (!this.#connection.isEnded && !this.#audio.hasRoomFor(bytes)) await this.#sent.next();
  }

  // --- sending -----------------------------------------------------------------------------------

  /** Send what may be sent now, and the rest when its time comes. */
  send() {
    clearTimeout(this.#nextTurn);
    if (this.#connection.state !== "open") return;
    let waitMs = /** @type {number | null} */ (BUFFERED_WAIT_MS);
    if (this.#connection.bufferedBytes < BUFFERED_BYTES_MAX) {
      const due = this.#audio.due(performance.now());
      const form = this.#useBinaryFrames ? binaryFrame : chunkMessage;
      for (const chunk of due.chunks) this.#connection.send(form(this.#order.sessionId, chunk));
      waitMs = due.waitMs;
      if (due.chunks.length > 0) this.#sent.tell();
    }
    if (waitMs !== null) this.#nextTurn = setTimeout(() => this.send(), waitMs);
  }

  /** There is no connection: nothing is sent, and whoever waits for room looks again. */
  rest() {
    clearTimeout(this.#nextTurn);
    this.#sent.tell();
  }

  // --- what the mesh says ------------------------------------------------------------------------

  /**
   * The session goes on, or (not resumed) another one takes its place; false if some audio is no longer here.
   * @param {Record<string, any>} ack
   */
  onWelcome(ack) {
    this.#useBinaryFrames = ack.use_binary_frame === true;
    if (ack.resumed === true) return this.#audio.onResumed(ack.resend_from_seq ?? this.#order.lastSeq + 1);
    this.#audio.onRestarted();
    return true;
  }

  /** Utterances have ended; their audio is needed no more. */
  onEnded() {
    this.#audio.onEnded(this.#order.lastSeq);
  }

  /** @param {Record<string, any>} message */
  onBackpressure(message) {
    this.#audio.onBackpressure(message.action, message.resume_after_ms, performance.now());
  }

  /**
   * The mesh did not take that chunk.
   * @param {number} seq
   */
  onRefused(seq) {
    this.#audio.onRefused(seq, performance.now());
    this.send();
  }
}

/**
 * A copy, because the caller may use its buffer again.
 * @param {Int16Array | Uint8Array} audio
 */
function bytesOf(audio) {
  if (!(audio instanceof Int16Array || audio instanceof Uint8Array) || audio.byteLength % 2 !== 0) {
    throw new LinguaError("INVALID_AUDIO", "this is not PCM16");
  }
  return new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength).slice();
}
