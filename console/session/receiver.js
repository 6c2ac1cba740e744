/**
 * Dispatches the messages that a session receives: results, errors, backpressure, room messages, events. `ResultOrder`
 * orders and deduplicates the results.
 */

import { errorFrom, isObject } from "./errors.js";
import { Signal } from "./signal.js";

/** Bound on results that wait to be read; beyond, the oldest is evicted and reported as lost. */
const UNREAD_RESULTS_MAX = 1_000;
/** Errors that end the session. */
const FATAL_CODES = new Set(["SESSION_SUPERSEDED", "SESSION_CLOSED", "INVALID_SESSION"]);

/** @typedef {import("./results.js").Result} Result */

/**
 * The parts of a session that receive its messages.
 * @typedef {object} Targets
 * @property {import("./connection.js").Connection} connection
 * @property {import("./results.js").ResultOrder} results
 * @property {import("./sender.js").Sender} sender
 * @property {import("./rooms.js").Rooms} rooms
 * @property {(name: string, detail: unknown) => void} emit
 * @property {(reason: string) => void} reportLoss
 */

/** The inbound side of one session. */
export class Receiver {
  /** `session_close_ack` was received, or the session is closed. */
  closeAck = new Signal();
  #targets;
  /** @type {Result[]} */
  #unread = [];
  #unreadChanged = new Signal();

  /** @param {Targets} targets */
  constructor(targets) {
    this.#targets = targets;
  }

  /**
   * The results of the session, each once, until it is closed.
   * @param {() => boolean} hasEnded  throws if the session ended with an error
   * @returns {AsyncGenerator<Result, void, void>}
   */
  async *results(hasEnded) {
    while (true) {
      const result = this.#unread.shift();
      if (result) yield result;
      else if (hasEnded()) return;
      else await this.#unreadChanged.wait();
    }
  }

  /** The session is closed: wake all waiters. */
  close() {
    this.#unreadChanged.notify();
    this.closeAck.notify();
  }

  /** @param {Record<string, any>} message */
  onMessage(message) {
    const { results, sender, rooms, emit } = this.#targets;
    switch (message.type) {
      case "translation_result":
      case "missing_result":
        return this.#onResult(message);
      case "utterance_ended":
        results.onUtteranceEnded(message);
        return sender.onUtterancesEnded();
      case "server_heartbeat":
        return;
      case "session_close_ack":
        return this.closeAck.notify();
      case "error":
        this.#onError(message);
        break;
      case "ui_event":
        if (message.event === "ERROR") results.onErrorAnnounced(message);
        break;
      case "backpressure":
        sender.onBackpressure(message);
        break;
      default:
        if (rooms.onMessage(message)) return;
    }
    emit("event", message);
  }

  /** @param {Record<string, any>} message */
  #onResult(message) {
    if (!Number.isInteger(message.utterance_index)) return;
    const { connection, results, sender, emit, reportLoss } = this.#targets;
    const { own, peer, ack } = results.onResult(message);
    this.#unread.push(...own);
    while (this.#unread.length > UNREAD_RESULTS_MAX) {
      this.#unread.shift();
      reportLoss("results");
    }
    sender.onUtterancesEnded();
    connection.send(ack);
    if (own.length > 0) this.#unreadChanged.notify();
    if (peer) emit("heard", peer);
  }

  /** @param {Record<string, any>} message */
  #onError(message) {
    const { connection, results, sender } = this.#targets;
    const details = isObject(message.details) ? message.details : {};
    if (FATAL_CODES.has(message.code)) connection.close(errorFrom(/** @type {any} */ (message)));
    else if (message.code === "SLOW_DOWN" && Number.isInteger(details.seq)) {
      sender.onChunkRejected(/** @type {number} */ (details.seq));
    } else results.onErrorAnnounced(message);
  }
}
