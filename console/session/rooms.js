/**
 * The room that a session is in: requests to open or enter one, which wait for their answer, and who is there.
 */

import { LinguaError, errorOf } from "./errors.js";

const ANSWER_MS = 10_000;

/** @typedef {{displayName?: string, preferredLang?: string}} Member  how the others see this session */

/**
 * @typedef {object} Waiting
 * @property {string} code  "" while a room is being opened
 * @property {(answer: Record<string, any>) => void} resolve
 * @property {(error: LinguaError) => void} reject
 */

/** At most one room, and at most one request that waits. */
export class Rooms {
  /** The code of the room; "" = none. */
  code = "";
  /** @type {Record<string, any>[]} */
  members = [];
  /** @type {Waiting | null} */
  #waiting = null;
  #send;
  #tell;

  /**
   * @param {(message: object) => void} send  throws if nothing can be sent
   * @param {(name: string, detail: unknown) => void} tell
   */
  constructor(send, tell) {
    this.#send = send;
    this.#tell = tell;
  }

  /** @param {Member} member */
  create(member) {
    return this.#ask("", { type: "room_create", client_ts: Date.now(), ...wireMember(member) });
  }

  /**
   * @param {string} code
   * @param {Member} member
   */
  join(code, member) {
    return this.#ask(code, { type: "room_join", room_code: code, ...wireMember(member) });
  }

  leave() {
    this.say({ type: "room_leave" });
    this.enter("");
  }

  /**
   * Send a message about the room.
   * @param {object} message
   */
  say(message) {
    if (!this.code) throw new LinguaError("NOT_IN_ROOM", "the session is in no room");
    this.#send({ room_code: this.code, ...message });
  }

  /**
   * The session is in that room, or in none.
   * @param {string} code
   */
  enter(code) {
    if (code !== this.code) this.members = [];
    this.code = code;
  }

  /**
   * False if this message is not about rooms, or not for those who wait here.
   * @param {Record<string, any>} message
   */
  onMessage(message) {
    switch (message.type) {
      case "room_create_ack":
        if (this.#waiting?.code === "") this.#answer(message);
        return true;
      case "room_members":
        if (this.#waiting?.code === message.room_code) this.#answer(message);
        if (message.room_code === this.code) {
          this.members = message.members;
          this.#tell("members", { roomCode: this.code, members: this.members });
        }
        return true;
      case "room_error":
        return this.fail(errorOf(/** @type {any} */ (message)));
      case "room_expired":
        if (message.room_code === this.code) this.enter("");
    }
    return false;
  }

  /**
   * True if a request was waiting; it fails.
   * @param {LinguaError} error
   */
  fail(error) {
    this.#waiting?.reject(error);
    return this.#waiting !== null;
  }

  /** @param {Record<string, any>} message */
  #answer(message) {
    this.enter(message.room_code);
    this.#waiting?.resolve(message);
  }

  /**
   * @param {string} code
   * @param {object} message
   * @returns {Promise<Record<string, any>>}
   */
  async #ask(code, message) {
    if (this.#waiting) throw new LinguaError("SLOW_DOWN", "another request for a room waits for its answer");
    this.#send(message);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting = { code, resolve, reject };
        timer = setTimeout(() => reject(new LinguaError("UNREACHABLE", `no answer within ${ANSWER_MS} ms`)), ANSWER_MS);
      });
    } finally {
      clearTimeout(timer);
      this.#waiting = null;
    }
  }
}

/** @param {Member} member */
function wireMember({ displayName, preferredLang }) {
  return { display_name: displayName, preferred_lang: preferredLang };
}
