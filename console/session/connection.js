/**
 * The WebSocket connection of a session: handshake, heartbeats, liveness timeout, and reconnect to the next address
 * with backoff. It does not interpret messages; its handler does.
 */

import { Backoff } from "./backoff.js";
import { LinguaError, errorFrom, isObject } from "./errors.js";
import { decodeBinaryMessage, isBinaryMessage, pongFor } from "./frames.js";

/** All in milliseconds. */
export const TIMING = Object.freeze({
  /** Timeout of a handshake, from the dial to session_init_ack. */
  open: 10_000,
  heartbeat: 30_000,
  /** Liveness timeout: a socket that receives nothing for this long counts as lost. */
  silence: 60_000,
  /** Backoff with full jitter: the next attempt comes between 0 and base * 2^failures, at most cap. */
  reconnectBase: 500,
  reconnectCap: 15_000,
  /** A connection that lasted this long resets the backoff. */
  stable: 5_000,
  /** After this time without a connection the session is abandoned. */
  giveUp: 600_000,
});

/** Close codes after which a reconnect cannot succeed: the code and text of the error. */
const FATAL_CLOSE_CODES = new Map([
  [4009, ["SESSION_SUPERSEDED", "the session was taken over by a newer connection"]],
  [1007, ["INVALID_MESSAGE", "the mesh could not read a message"]],
  [1009, ["MESSAGE_TOO_LARGE", "a message was too large"]],
]);
/** Failures of a handshake that are retried. */
const RETRYABLE_CODES = new Set([
  "UNREACHABLE",
  "INTERNAL_ERROR",
  "SCHEDULER_DEPENDENCY_DOWN",
  "SLOW_DOWN",
  "WS_DISCONNECTED",
]);

/** @typedef {"new" | "opening" | "open" | "reconnecting" | "closed"} State */
/** @typedef {{-readonly [name in keyof typeof TIMING]?: number}} Timing */

/**
 * The session's side of the connection.
 * @typedef {object} Handler
 * @property {() => object} sessionInit  the message for the next handshake
 * @property {(ack: Record<string, any>) => void} onSessionInitAck  throws a LinguaError to reject the handshake
 * @property {(message: Record<string, any>) => void} onMessage
 * @property {() => object} heartbeat
 * @property {(state: State, error: LinguaError | null) => void} onState
 */

/** One socket after the other, until `close`. */
export class Connection {
  /** @type {State} */
  state = "new";
  #urls;
  #handler;
  #timing;
  #backoff;
  #urlIndex = 0;
  #openedMs = 0;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #heartbeatTimer;
  /** Of the handshake, then of liveness. @type {ReturnType<typeof setTimeout> | undefined} */
  #timeoutTimer;
  /** Aborts the pending handshake or backoff delay. */
  #abort = (/** @type {LinguaError} */ _error) => {};

  /**
   * @param {string[]} urls
   * @param {Handler} handler
   * @param {Timing} [timing]
   */
  constructor(urls, handler, timing = {}) {
    if (urls.length === 0) throw new LinguaError("UNREACHABLE", "there is no address");
    this.#urls = urls.map(withPath);
    this.#handler = handler;
    this.#timing = { ...TIMING, ...timing };
    this.#backoff = new Backoff(this.#timing.reconnectBase, this.#timing.reconnectCap);
  }

  /** The address in use, or the next to be tried. */
  get url() {
    return this.#urls[this.#urlIndex % this.#urls.length];
  }

  /** True after `close`. */
  get isClosed() {
    return this.state === "closed";
  }

  /** Bytes in the socket's send buffer. */
  get bufferedBytes() {
    return this.#socket?.bufferedAmount ?? 0;
  }

  /** Try each address once. Rejects with the last failure if no handshake succeeds. */
  async open() {
    if (this.state !== "new") throw new LinguaError("SESSION_CLOSED", "a session is opened once");
    this.#setState("opening", null);
    let failure = null;
    for (let attempts = 0; attempts < this.#urls.length && !this.isClosed; attempts += 1) {
      try {
        return await this.#dial();
      } catch (error) {
        failure = /** @type {LinguaError} */ (error);
        if (!RETRYABLE_CODES.has(failure.code)) break;
        this.#urlIndex += 1;
      }
    }
    failure ??= new LinguaError("SESSION_CLOSED", "the session was closed");
    this.close(failure);
    throw failure;
  }

  /**
   * False if there is no open connection: the message is not sent.
   * @param {object | Uint8Array<ArrayBuffer>} message
   */
  send(message) {
    if (this.state !== "open" || this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(message instanceof Uint8Array ? message : JSON.stringify(message));
    return true;
  }

  /**
   * Close for good; idempotent.
   * @param {LinguaError | null} error  the cause; null if the user closed the session
   */
  close(error) {
    if (this.state === "closed") return;
    this.#dropSocket();
    this.#setState("closed", error);
    this.#abort(error ?? new LinguaError("SESSION_CLOSED", "the session was closed"));
  }

  /**
   * @param {State} state
   * @param {LinguaError | null} error
   */
  #setState(state, error) {
    this.state = state;
    this.#handler.onState(state, error);
  }

  // --- handshake ---------------------------------------------------------------------------------

  /** @returns {Promise<void>} */
  #dial() {
    const url = this.url;
    return new Promise((resolve, reject) => {
      this.#abort = (error) => {
        this.#dropSocket();
        reject(error);
      };
      const fail = (/** @type {string} */ text) => this.#abort(new LinguaError("UNREACHABLE", text));
      try {
        this.#socket = new WebSocket(url);
      } catch {
        return fail(`${url} is not a WebSocket address (ws:// or wss://)`);
      }
      const socket = this.#socket;
      socket.binaryType = "arraybuffer";
      const openMs = this.#timing.open;
      this.#timeoutTimer = setTimeout(() => fail(`no reply from ${url} within ${openMs} ms`), openMs);
      socket.onopen = () => socket.send(JSON.stringify(this.#handler.sessionInit()));
      socket.onclose = () => fail(`cannot connect to ${url}`);
      socket.onmessage = ({ data }) => {
        const message = decode(data);
        if (message?.type === "error") this.#abort(errorFrom(/** @type {any} */ (message)));
        if (message?.type === "session_init_ack") this.#onSessionInitAck(socket, message, resolve);
      };
    });
  }

  /**
   * @param {WebSocket} socket
   * @param {Record<string, any>} ack
   * @param {() => void} resolve
   */
  #onSessionInitAck(socket, ack, resolve) {
    socket.onclose = ({ code }) => this.#onLost(code);
    socket.onmessage = ({ data }) => this.#onMessage(data);
    this.#openedMs = performance.now();
    this.#heartbeatTimer = setInterval(() => this.send(this.#handler.heartbeat()), this.#timing.heartbeat);
    this.#restartLivenessTimer();
    try {
      this.#handler.onSessionInitAck(ack);
    } catch (error) {
      return this.#abort(/** @type {LinguaError} */ (error));
    }
    this.#abort = () => {};
    this.#setState("open", null);
    resolve();
  }

  // --- receiving ---------------------------------------------------------------------------------

  /** @param {unknown} data */
  #onMessage(data) {
    this.#restartLivenessTimer();
    if (data instanceof ArrayBuffer && !isBinaryMessage(data)) {
      const pong = pongFor(data);
      if (pong) this.send(pong);
      return;
    }
    const message = decode(data);
    if (message) this.#handler.onMessage(message);
  }

  #restartLivenessTimer() {
    clearTimeout(this.#timeoutTimer);
    this.#timeoutTimer = setTimeout(() => this.#onLost(0), this.#timing.silence);
  }

  // --- reconnect ---------------------------------------------------------------------------------

  /** @param {number} code  the close code; 0 after the liveness timeout */
  #onLost(code) {
    this.#dropSocket();
    const fatal = FATAL_CLOSE_CODES.get(code);
    if (fatal) return this.close(new LinguaError(fatal[0], fatal[1]));
    if (performance.now() - this.#openedMs >= this.#timing.stable) this.#backoff.reset();
    this.#setState("reconnecting", null);
    void this.#reconnect();
  }

  async #reconnect() {
    const untilMs = performance.now() + this.#timing.giveUp;
    while (!this.isClosed && performance.now() < untilMs) {
      this.#urlIndex += 1;
      try {
        await this.#wait(this.#backoff.nextDelayMs());
        return await this.#dial();
      } catch (error) {
        const failure = /** @type {LinguaError} */ (error);
        if (!RETRYABLE_CODES.has(failure.code)) return this.close(failure);
      }
    }
    this.close(new LinguaError("WS_DISCONNECTED", `no connection within ${this.#timing.giveUp} ms`));
  }

  /**
   * @param {number} ms
   * @returns {Promise<void>}
   */
  #wait(ms) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.#abort = (error) => {
        clearTimeout(timer);
        reject(error);
      };
    });
  }

  /** Close the socket and its timers; its later events are ignored. */
  #dropSocket() {
    clearInterval(this.#heartbeatTimer);
    clearTimeout(this.#timeoutTimer);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}

/**
 * The complete address: `/ws/session` is the default path, and http:// is taken as ws://.
 * @param {string} url
 */
function withPath(url) {
  let parts;
  try {
    parts = new URL(url);
  } catch {
    return url; // the dial fails and names it
  }
  const scheme = parts.protocol === "http:" ? "ws:" : parts.protocol === "https:" ? "wss:" : parts.protocol;
  const path = parts.pathname === "" || parts.pathname === "/" ? "/ws/session" : parts.pathname;
  return `${scheme}//${parts.host}${path}${parts.search}`;
}

/**
 * @param {unknown} data
 * @returns {Record<string, any> | null}  null if it is neither a JSON object nor a binary message
 */
function decode(data) {
  try {
    if (data instanceof ArrayBuffer) return decodeBinaryMessage(data);
    const message = JSON.parse(String(data));
    return isObject(message) ? message : null;
  } catch {
    return null;
  }
}
