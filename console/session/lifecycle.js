/**
 * The lifecycle of a session: wires its parts, opens, resumes or replaces it after a lost connection, and closes it.
 */

import { Playback } from "../audio/playback.js";
import { Connection } from "./connection.js";
import { LinguaError } from "./errors.js";
import { SAMPLE_RATE, checkNegotiated, sessionInit } from "./handshake.js";
import { Receiver } from "./receiver.js";
import { ResultOrder } from "./results.js";
import { Rooms } from "./rooms.js";
import { Sender } from "./sender.js";

/** @typedef {import("./connection.js").State} State */
/** @typedef {import("../lingua-session.js").SessionOptions} SessionOptions */

/** The parts of one session and its state. */
export class SessionLifecycle {
  /** True once audio or results may have been lost. */
  lost = false;
  /** The error that ended the session; null while it is open, or if the user closed it. @type {LinguaError | null} */
  error = null;
  connection;
  sender;
  receiver;
  rooms;
  playback = new Playback();
  #options;
  #emit;
  #results = new ResultOrder();
  #resumeToken = "";
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * @param {string[]} urls
   * @param {SessionOptions} options
   * @param {(name: string, detail: unknown) => void} emit  dispatches an event of the session
   */
  constructor(urls, options, emit) {
    this.#options = { src: "auto", ...options };
    this.#emit = emit;
    const handler = {
      sessionInit: () => sessionInit(this.#options, this.#resumeToken, this.#results),
      heartbeat: () => ({ type: "client_heartbeat", session_id: this.sessionId, timestamp: Date.now() }),
      onSessionInitAck: (/** @type {Record<string, any>} */ ack) => this.#onSessionInitAck(ack),
      onMessage: (/** @type {Record<string, any>} */ message) => this.receiver.onMessage(message),
      onState: (/** @type {State} */ state, /** @type {LinguaError | null} */ error) => this.#onState(state, error),
    };
    this.connection = new Connection(urls, handler, options.timing);
    const bufferOptions = { sampleRate: SAMPLE_RATE, bytesMax: options.keptBytesMax };
    this.sender = new Sender(this.connection, this.#results, bufferOptions);
    this.rooms = new Rooms((message) => this.#send(message), emit);
    this.receiver = new Receiver({
      connection: this.connection,
      results: this.#results,
      sender: this.sender,
      rooms: this.rooms,
      emit,
      reportLoss: (reason) => this.reportLoss(reason),
    });
  }

  /** "" before the first handshake. */
  get sessionId() {
    return this.#results.sessionId;
  }

  /** True if the session was closed. Throws if it ended with an error. */
  hasEnded() {
    if (this.error) throw this.error;
    return this.connection.isClosed;
  }

  /** Throws if the session is closed. */
  assertNotClosed() {
    if (this.hasEnded()) throw new LinguaError("SESSION_CLOSED", "the session was closed");
  }

  /**
   * Set `lost` and emit the event.
   * @param {string} reason  "session", "results" or "audio"
   */
  reportLoss(reason) {
    this.lost = true;
    this.#emit("lost", { reason });
  }

  /**
   * Send session_close and wait for its acknowledgement, which follows the last results. Idempotent.
   * @param {number} timeoutMs
   */
  close(timeoutMs) {
    this.#closing ??= this.#close(timeoutMs);
    return this.#closing;
  }

  /** @param {number} timeoutMs */
  async #close(timeoutMs) {
    const message = { type: "session_close", session_id: this.sessionId, reason: "client closed" };
    if (this.connection.send(message)) await this.receiver.closeAck.wait(timeoutMs);
    this.connection.close(null);
  }

  /**
   * The handshake succeeded: the session is new, resumed, or (not resumed) replaces a lost one.
   * @param {Record<string, any>} ack
   */
  #onSessionInitAck(ack) {
    checkNegotiated(ack);
    const previousId = this.sessionId;
    const isAudioComplete = this.sender.onSessionInitAck(ack);
    let lossReason = "";
    if (ack.resumed === true) {
      this.#results.resume(ack.session_id, ack.lost === true);
      lossReason = ack.lost === true ? "results" : isAudioComplete ? "" : "audio";
    } else {
      this.#results.restart(ack.session_id);
      lossReason = previousId ? "session" : "";
    }
    this.#resumeToken = ack.resume_token ?? "";
    this.rooms.setRoom(ack.room_code ?? "");
    if (lossReason) this.reportLoss(lossReason);
  }

  /**
   * @param {State} state
   * @param {LinguaError | null} error
   */
  #onState(state, error) {
    if (state !== "open") this.sender.suspend();
    if (state === "reconnecting") {
      this.rooms.fail(new LinguaError("WS_DISCONNECTED", "the connection is lost"));
      if (this.#closing) return this.connection.close(null);
    }
    if (state === "closed") {
      this.error = error;
      this.rooms.fail(error ?? new LinguaError("SESSION_CLOSED", "the session was closed"));
      void this.playback.close();
      this.receiver.close();
    }
    this.#emit("state", { state, url: this.connection.url, error });
    if (state === "open") this.sender.sendDue();
  }

  /** @param {object} message */
  #send(message) {
    this.assertNotClosed();
    if (!this.connection.send(message)) throw new LinguaError("WS_DISCONNECTED", "the connection is lost");
  }
}
