/**
 * What the mesh says to a session, and what follows from it: results, refusals, wishes, news. What is in order,
 * `ResultOrder` decides.
 */

import { News } from "./signal.js";
import { errorOf, isObject } from "./errors.js";

/** Results that nobody has read yet; beyond, the oldest is dropped and `lost` is told. */
const RESULTS_UNREAD_MAX = 1_000;
/** Codes that end the session. */
const FATAL = new Set(["SESSION_SUPERSEDED", "SESSION_CLOSED", "INVALID_SESSION"]);

/** @typedef {import("./results.js").Result} Result */

/**
 * Those who are concerned.
 * @typedef {object} Concerned
 * @property {import("./connection.js").Connection} connection
 * @property {import("./results.js").ResultOrder} order
 * @property {import("./sender.js").Sender} sender
 * @property {import("./rooms.js").Rooms} rooms
 * @property {(name: string, detail: unknown) => void} tell
 * @property {(reason: string) => void} tellLost
 */

/** The ears of one session. */
export class Hearing {
  /** The mesh has said goodbye, or the session has ended without. */
  closeAck = new News();
  #to;
  /** @type {Result[]} */
  #unread = [];
  #toldResults = new News();

  /** @param {Concerned} to */
  constructor(to) {
    this.#to = to;
  }

  /**
   * The results of the session, each once, until it is over.
   * @param {() => boolean} isOver  throws if the session ended by an error
   * @returns {AsyncGenerator<Result, void, void>}
   */
  async *results(isOver) {
    while (true) {
      const result = this.#unread.shift();
      if (result) yield result;
      else if (isOver()) return;
      else await this.#toldResults.next();
    }
  }

  /** Nothing more will be heard. */
  end() {
    this.#toldResults.tell();
    this.closeAck.tell();
  }

  /** @param {Record<string, any>} message */
  onMessage(message) {
    const { order, sender, rooms, tell } = this.#to;
    switch (message.type) {
      case "translation_result":
      case "missing_result":
        return this.#onResult(message);
      case "utterance_ended":
        order.onUtteranceEnded(message);
        return sender.onEnded();
      case "server_heartbeat":
        return;
      case "session_close_ack":
        return this.closeAck.tell();
      case "error":
        this.#onError(message);
        break;
      case "ui_event":
        if (message.event === "ERROR") order.onReason(message);
        break;
      case "backpressure":
        sender.onBackpressure(message);
        break;
      default:
        if (rooms.onMessage(message)) return;
    }
    tell("event", message);
  }

  /** @param {Record<string, any>} message */
  #onResult(message) {
    if (!Number.isInteger(message.utterance_index)) return;
    const { connection, order, sender, tell, tellLost } = this.#to;
    const { results, heard, ack } = order.onResult(message);
    this.#unread.push(...results);
    while (this.#unread.length > RESULTS_UNREAD_MAX) {
      this.#unread.shift();
      tellLost("results");
    }
    sender.onEnded();
    if (ack) connection.send(ack);
    if (results.length > 0) this.#toldResults.tell();
    if (heard) tell("heard", heard);
  }

  /** @param {Record<string, any>} message */
  #onError(message) {
    const { connection, order, sender } = this.#to;
    const details = isObject(message.details) ? message.details : {};
    if (FATAL.has(message.code)) connection.end(errorOf(/** @type {any} */ (message)));
    else if (message.code === "SLOW_DOWN" && Number.isInteger(details.seq)) {
      sender.onRefused(/** @type {number} */ (details.seq));
    } else order.onReason(message);
  }
}
