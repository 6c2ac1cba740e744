/**
 * Keeps one WebSocket to the mesh: greets, beats, notices silence, and comes back on the next address when it is lost.
 * Knows nothing of what is said; its owner does.
 */

import { LinguaError, errorOf, isObject } from "./errors.js";
import { pongFor } from "./frames.js";

/** All in milliseconds. */
export const TIMING = Object.freeze({
  /** From dialling to session_init_ack. */
  open: 10_000,
  heartbeat: 30_000,
  /** A socket from which nothing is heard for so long is given up. */
  silence: 60_000,
  /** Full jitter: the next try comes anywhere between 0 and base * 2^failures, at most cap. */
  reconnectBase: 500,
  reconnectCap: 15_000,
  /** A connection that lasted so long was a good one: the next try comes soon. */
  stable: 5_000,
  /** A lost connection is tried again for so long. */
  giveUp: 600_000,
});

/** Beyond this 2^failures means nothing any more. */
const EXPONENT_MAX = 32;
/** Close codes after which another connection would end no better: the code and text of the error. */
const FINAL_CLOSES = new Map([
  [4009, ["SESSION_SUPERSEDED", "the session was taken over by a newer connection"]],
  [1007, ["INVALID_MESSAGE", "the mesh could not read a message"]],
  [1009, ["MESSAGE_TOO_LARGE", "a message was too large"]],
]);
/** Refusals of a greeting that may be over at the next try. */
const PASSING = new Set(["UNREACHABLE", "INTERNAL_ERROR", "SCHEDULER_DEPENDENCY_DOWN", "SLOW_DOWN", "WS_DISCONNECTED"]);

/** @typedef {"new" | "opening" | "open" | "reconnecting" | "closed"} State */
/** @typedef {{-readonly [name in keyof typeof TIMING]?: number}} Timing */

/**
 * Whoever speaks by the connection.
 * @typedef {object} Owner
 * @property {() => object} greeting  the session_init of this moment
 * @property {(ack: Record<string, any>) => void} onWelcome  may throw a LinguaError to go no further
 * @property {(message: Record<string, any>) => void} onMessage
 * @property {() => object} heartbeat
 * @property {(state: State, error: LinguaError | null) => void} onState
 */

/** One connection after the other, until `end`. */
export class Connection {
  /** @type {State} */
  state = "new";
  #urls;
  #owner;
  #timing;
  #place = 0;
  #failures = 0;
  #openedMs = 0;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #beating;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #patience;
  /** Ends what is being waited for: an answer, or the time of the next try. */
  #giveUp = (/** @type {LinguaError} */ _error) => {};

  /**
   * @param {string[]} urls
   * @param {Owner} owner
   * @param {Timing} [timing]
   */
  constructor(urls, owner, timing = {}) {
    if (urls.length === 0) throw new LinguaError("UNREACHABLE", "there is no address");
    this.#urls = urls.map(withPath);
    this.#owner = owner;
    this.#timing = { ...TIMING, ...timing };
  }

  /** The address in use, or the next to be tried. */
  get url() {
    return this.#urls[this.#place % this.#urls.length];
  }

  /** True after `end`. */
  get isEnded() {
    return this.state === "closed";
  }

  /** Bytes that are not yet on their way. */
  get bufferedBytes() {
    return this.#socket?.bufferedAmount ?? 0;
  }

  /** Try each address once; the last one's error if none of them works. */
  async open() {
    if (this.state !== "new") throw new LinguaError("SESSION_CLOSED", "a session is opened once");
    this.#setState("opening", null);
    let failure = null;
    for (let tries = 0; tries < this.#urls.length && !this.isEnded; tries += 1) {
      try {
        return await this.#dial();
      } catch (error) {
        failure = /** @type {LinguaError} */ (error);
        if (!PASSING.has(failure.code)) break;
        this.#place += 1;
      }
    }
    failure ??= new LinguaError("SESSION_CLOSED", "the session was closed");
    this.end(failure);
    throw failure;
  }

  /**
   * False if there is no open connection: then nothing is sent.
   * @param {object | Uint8Array<ArrayBuffer>} message
   */
  send(message) {
    if (this.state !== "open" || this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(message instanceof Uint8Array ? message : JSON.stringify(message));
    return true;
  }

  /**
   * No more connections.
   * @param {LinguaError | null} error  why, unless it was wished
   */
  end(error) {
    if (this.state === "closed") return;
    this.#forget();
    this.#setState("closed", error);
    this.#giveUp(error ?? new LinguaError("SESSION_CLOSED", "the session was closed"));
  }

  /**
   * @param {State} state
   * @param {LinguaError | null} error
   */
  #setState(state, error) {
    this.state = state;
    this.#owner.onState(state, error);
  }

  // --- greeting ----------------------------------------------------------------------------------

  /** @returns {Promise<void>} */
  #dial() {
    const url = this.url;
    return new Promise((resolve, reject) => {
      this.#giveUp = (error) => {
        this.#forget();
        reject(error);
      };
      const fail = (/** @type {string} */ text) => this.#giveUp(new LinguaError("UNREACHABLE", text));
      try {
        this.#socket = new WebSocket(url);
      } catch {
        return fail(`${url} is not a WebSocket address (ws:// or wss://)`);
      }
      const socket = this.#socket;
      socket.binaryType = "arraybuffer";
      const openMs = this.#timing.open;
      this.#patience = setTimeout(() => fail(`no answer from ${url} within ${openMs} ms`), openMs);
      socket.onopen = () => socket.send(JSON.stringify(this.#owner.greeting()));
      socket.onclose = () => fail(`cannot connect to ${url}`);
      socket.onmessage = ({ data }) => {
        const message = decoded(data);
        if (message?.type === "error") this.#giveUp(errorOf(/** @type {any} */ (message)));
        if (message?.type === "session_init_ack") this.#adopt(socket, message, resolve);
      };
    });
  }

  /**
   * @param {WebSocket} socket
   * @param {Record<string, any>} ack
   * @param {() => void} resolve
   */
  #adopt(socket, ack, resolve) {
    socket.onclose = ({ code }) => this.#onLost(code);
    socket.onmessage = ({ data }) => this.#onMessage(data);
    this.#openedMs = performance.now();
    this.#beating = setInterval(() => this.send(this.#owner.heartbeat()), this.#timing.heartbeat);
    this.#listenOn();
    try {
      this.#owner.onWelcome(ack);
    } catch (error) {
      return this.#giveUp(/** @type {LinguaError} */ (error));
    }
    this.#giveUp = () => {};
    this.#setState("open", null);
    resolve();
  }

  // --- listening ---------------------------------------------------------------------------------

  /** @param {unknown} data */
  #onMessage(data) {
    this.#listenOn();
    if (data instanceof ArrayBuffer) {
      const pong = pongFor(data);
      if (pong) this.send(pong);
      return;
    }
    const message = decoded(data);
    if (message) this.#owner.onMessage(message);
  }

  #listenOn() {
    clearTimeout(this.#patience);
    this.#patience = setTimeout(() => this.#onLost(0), this.#timing.silence);
  }

  // --- coming back -------------------------------------------------------------------------------

  /** @param {number} code */
  #onLost(code) {
    this.#forget();
    const final = FINAL_CLOSES.get(code);
    if (final) return this.end(new LinguaError(final[0], final[1]));
    if (performance.now() - this.#openedMs >= this.#timing.stable) this.#failures = 0;
    this.#setState("reconnecting", null);
    void this.#comeBack();
  }

  async #comeBack() {
    const untilMs = performance.now() + this.#timing.giveUp;
    while (!this.isEnded && performance.now() < untilMs) {
      this.#place += 1;
      try {
        await this.#wait(this.#delay());
        return await this.#dial();
      } catch (error) {
        const refusal = /** @type {LinguaError} */ (error);
        if (!PASSING.has(refusal.code)) return this.end(refusal);
      }
    }
    this.end(new LinguaError("WS_DISCONNECTED", `no connection within ${this.#timing.giveUp} ms`));
  }

  #delay() {
    const { reconnectBase, reconnectCap } = this.#timing;
    const most = Math.min(reconnectCap, reconnectBase * 2 ** Math.min(this.#failures, EXPONENT_MAX));
    this.#failures += 1;
    return Math.random() * most;
  }

  /**
   * @param {number} ms
   * @returns {Promise<void>}
   */
  #wait(ms) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.#giveUp = (error) => {
        clearTimeout(timer);
        reject(error);
      };
    });
  }

  /** Whatever the old socket still has to say, nobody listens. */
  #forget() {
    clearInterval(this.#beating);
    clearTimeout(this.#patience);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}

/**
 * The address that `url` means: ws://host:5010 is enough to write, and http:// is taken for ws://.
 * @param {string} url
 */
export function withPath(url) {
  let parts;
  try {
    parts = new URL(url);
  } catch {
    return url; // whoever dials it is told that it is none
  }
  const scheme = parts.protocol === "http:" ? "ws:" : parts.protocol === "https:" ? "wss:" : parts.protocol;
  const path = parts.pathname === "" || parts.pathname === "/" ? "/ws/session" : parts.pathname;
  return `${scheme}//${parts.host}${path}${parts.search}`;
}

/**
 * @param {unknown} data
 * @returns {Record<string, any> | null}  null for what is no message
 */
function decoded(data) {
  if (typeof data !== "string") return null;
  try {
    const message = JSON.parse(data);
    return isObject(message) ? message : null;
  } catch {
    return null;
  }
}
