/**
 * Sends the audio of a session: in order, within the mesh's backpressure and the socket's send buffer, on this
 * connection or the next. `SendBuffer` decides which chunks are due; here are the timers and the socket.
 */

import { LinguaError } from "./errors.js";
import { binaryFrame, chunkMessage } from "./frames.js";
import { SendBuffer } from "./send-buffer.js";
import { Signal } from "./signal.js";

/** Bytes buffered in the WebSocket; beyond, chunks stay in the send buffer until the next check. */
const SOCKET_BYTES_MAX = 1024 * 1024;
const SOCKET_CHECK_MS = 50;

/** Connects one session's send buffer to its connection. */
export class Sender {
  #connection;
  #results;
  #buffer;
  #useBinaryFrames = false;
  /** Chunks were sent, or the connection state changed: capacity may be free. */
  #capacityChanged = new Signal();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #sendTimer;

  /**
   * @param {import("./connection.js").Connection} connection
   * @param {import("./results.js").ResultOrder} results  has the session id and the acknowledged position
   * @param {{sampleRate?: number, bytesMax?: number}} options
   */
  constructor(connection, results, options) {
    this.#connection = connection;
    this.#results = results;
    this.#buffer = new SendBuffer(options);
  }

  // --- audio -------------------------------------------------------------------------------------

  /**
   * Buffer audio and send it when due. Throws `SLOW_DOWN` if the buffer is full.
   * @param {Int16Array | Uint8Array} audio
   */
  addAudio(audio) {
    if (!this.#buffer.add(bytesOf(audio), Date.now())) {
      throw new LinguaError("SLOW_DOWN", `${this.#buffer.bytes} bytes of audio wait to be sent`);
    }
    this.sendDue();
  }

  endUtterance() {
    this.#buffer.endUtterance(Date.now());
    this.sendDue();
  }

  /**
   * Resolves when the buffer has capacity for that much audio, or the connection was closed.
   * @param {number} bytes
   */
  async waitForCapacity(bytes) {
    while (!this.#connection.isClosed && !this.#buffer.hasCapacityFor(bytes)) await this.#capacityChanged.wait();
  }

  // --- sending -----------------------------------------------------------------------------------

  /** Send the chunks that are due and schedule the rest. */
  sendDue() {
    clearTimeout(this.#sendTimer);
    if (this.#connection.state !== "open") return;
    let waitMs = /** @type {number | null} */ (SOCKET_CHECK_MS);
    if (this.#connection.bufferedBytes < SOCKET_BYTES_MAX) {
      const due = this.#buffer.takeDue(performance.now());
      const encode = this.#useBinaryFrames ? binaryFrame : chunkMessage;
      for (const chunk of due.chunks) this.#connection.send(encode(this.#results.sessionId, chunk));
      waitMs = due.waitMs;
      if (due.chunks.length > 0) this.#capacityChanged.notify();
    }
    if (waitMs !== null) this.#sendTimer = setTimeout(() => this.sendDue(), waitMs);
  }

  /** No open connection: stop sending, and wake those who wait for capacity, because the session may be closed. */
  suspend() {
    clearTimeout(this.#sendTimer);
    this.#capacityChanged.notify();
  }

  // --- messages of the mesh ----------------------------------------------------------------------

  /**
   * `session_init_ack`: retry unacknowledged audio in the resumed session, or queue it for the new one. False if some
   * of it was evicted.
   * @param {Record<string, any>} ack
   */
  onSessionInitAck(ack) {
    this.#useBinaryFrames = ack.use_binary_frame === true;
    if (ack.resumed === true) return this.#buffer.onResumed(ack.resend_from_seq ?? this.#results.lastSeq + 1);
    this.#buffer.onRestarted();
    return true;
  }

  /** Utterances have ended: their audio is acknowledged. */
  onUtterancesEnded() {
    this.#buffer.acknowledge(this.#results.lastSeq);
  }

  /** @param {Record<string, any>} message */
  onBackpressure(message) {
    this.#buffer.onBackpressure(message.action, message.resume_after_ms, performance.now());
  }

  /**
   * The mesh rejected a chunk; it is retried.
   * @param {number} seq
   */
  onChunkRejected(seq) {
    this.#buffer.onRejected(seq, performance.now());
    this.sendDue();
  }
}

/**
 * A copy, because the caller may reuse its buffer.
 * @param {Int16Array | Uint8Array} audio
 */
function bytesOf(audio) {
  if (!(audio instanceof Int16Array || audio instanceof Uint8Array) || audio.byteLength % 2 !== 0) {
    throw new LinguaError("INVALID_AUDIO", "this is not PCM16");
  }
  return new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength).slice();
}
