/**
 * The room of a session: requests to create or join one, which wait for their reply, and its members.
 */

import { LinguaError, errorFrom } from "./errors.js";

const REPLY_TIMEOUT_MS = 10_000;

/** @typedef {{displayName?: string, preferredLang?: string}} Member  how other members see this session */

/**
 * @typedef {object} PendingRequest
 * @property {string} code  "" while a room is being created
 * @property {(reply: Record<string, any>) => void} resolve
 * @property {(error: LinguaError) => void} reject
 */

/** At most one room, and at most one pending request. */
export class Rooms {
  /** The code of the room; "" = none. */
  code = "";
  /** @type {Record<string, any>[]} */
  members = [];
  /** @type {PendingRequest | null} */
  #pending = null;
  #send;
  #emit;

  /**
   * @param {(message: object) => void} send  throws if there is no open connection
   * @param {(name: string, detail: unknown) => void} emit
   */
  constructor(send, emit) {
    this.#send = send;
    this.#emit = emit;
  }

  /** @param {Member} member */
  create(member) {
    return this.#request("", { type: "room_create", client_ts: Date.now(), ...memberFields(member) });
  }

  /**
   * @param {string} code
   * @param {Member} member
   */
  join(code, member) {
    return this.#request(code, { type: "room_join", room_code: code, ...memberFields(member) });
  }

  leave() {
    this.send({ type: "room_leave" });
    this.setRoom("");
  }

  /**
   * Send a message with the room's code. Throws `NOT_IN_ROOM` without a room.
   * @param {object} message
   */
  send(message) {
    if (!this.code) throw new LinguaError("NOT_IN_ROOM", "the session is in no room");
    this.#send({ room_code: this.code, ...message });
  }

  /**
   * Set the room that the session is in; "" = none.
   * @param {string} code
   */
  setRoom(code) {
    if (code !== this.code) this.members = [];
    this.code = code;
  }

  /**
   * True if the message was consumed; otherwise it is the page's `event`.
   * @param {Record<string, any>} message
   */
  onMessage(message) {
    switch (message.type) {
      case "room_create_ack":
        if (this.#pending?.code === "") this.#onReply(message);
        return true;
      case "room_members":
        if (this.#pending?.code === message.room_code) this.#onReply(message);
        if (message.room_code === this.code) {
          this.members = message.members;
          this.#emit("members", { roomCode: this.code, members: this.members });
        }
        return true;
      case "room_error":
        return this.fail(errorFrom(/** @type {any} */ (message)));
      case "room_expired":
        if (message.room_code === this.code) this.setRoom("");
    }
    return false;
  }

  /**
   * Fail the pending request; false if there is none.
   * @param {LinguaError} error
   */
  fail(error) {
    this.#pending?.reject(error);
    return this.#pending !== null;
  }

  /** @param {Record<string, any>} message */
  #onReply(message) {
    this.setRoom(message.room_code);
    this.#pending?.resolve(message);
  }

  /**
   * @param {string} code
   * @param {object} message
   * @returns {Promise<Record<string, any>>}
   */
  async #request(code, message) {
    if (this.#pending) throw new LinguaError("SLOW_DOWN", "another room request is pending");
    this.#send(message);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        this.#pending = { code, resolve, reject };
        const onTimeout = () => reject(new LinguaError("UNREACHABLE", `no reply within ${REPLY_TIMEOUT_MS} ms`));
        timer = setTimeout(onTimeout, REPLY_TIMEOUT_MS);
      });
    } finally {
      clearTimeout(timer);
      this.#pending = null;
    }
  }
}

/** @param {Member} member */
function memberFields({ displayName, preferredLang }) {
  return { display_name: displayName, preferred_lang: preferredLang };
}
