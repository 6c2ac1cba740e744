/**
 * The session module: stream speech to the mesh from a web page and receive translations.
 *
 *     import { Session, microphone, speechOf } from "./lingua-session.js";
 *
 *     const session = new Session("ws://127.0.0.1:5010", { src: "en", tgt: "es" });
 *     await session.open();
 *     session.stream(speechOf(microphone()));
 *     for await (const result of session.results()) console.log(result.index, result.textTranslated);
 *
 * A lost connection is resumed automatically, at the next address if there are several: unacknowledged audio is sent
 * again, undelivered results are redelivered, and duplicates are removed. docs/browser.md is the reference.
 */

import { SessionLifecycle } from "./session/lifecycle.js";

export { LinguaError } from "./session/errors.js";
export { Microphone, microphone } from "./audio/microphone.js";
export { Speech, SpeechGate, speechOf } from "./audio/speech-gate.js";

/** @typedef {import("./session/results.js").Result} Result */
/** @typedef {import("./session/connection.js").State} State */

/** Timeout of `close`: slightly longer than the mesh takes to deliver the last results. */
const CLOSE_TIMEOUT_MS = 12_000;

/**
 * @typedef {object} SessionOptions
 * @property {string} tgt  the target language
 * @property {string} [src]  the source language; "auto" lets the node detect it
 * @property {Record<string, unknown>} [init]  more fields of session_init, such as tenant_id, pairing_code, mode
 * @property {number} [keptBytesMax]  bound on buffered audio: unsent, or sent and not acknowledged
 * @property {import("./session/connection.js").Timing} [timing]
 */

/**
 * One speaker's session with the mesh. Events, with their data in `detail`:
 *   state    {state, url, error}: "opening", "open", "reconnecting", "closed"
 *   lost     {reason}: audio or results may be lost
 *   members  {roomCode, members}: the current members of the room
 *   heard    a Result: another member's utterance
 *   event    any other message of the mesh: ui_event, asr_partial, error, backpressure, webrtc_offer, ...
 */
export class Session extends EventTarget {
  #lifecycle;

  /**
   * @param {string | string[]} urls  ws://host:port of one or several edges
   * @param {SessionOptions} options
   */
  constructor(urls, options) {
    super();
    const emit = (/** @type {string} */ name, /** @type {unknown} */ detail) => {
      this.dispatchEvent(new CustomEvent(name, { detail }));
    };
    this.#lifecycle = new SessionLifecycle([urls].flat(), options, emit);
  }

  /** The id that the mesh assigned; "" before the session is open. */
  get sessionId() {
    return this.#lifecycle.sessionId;
  }

  /** @returns {State} */
  get state() {
    return this.#lifecycle.connection.state;
  }

  /** The edge in use, or the next to be tried. */
  get url() {
    return this.#lifecycle.connection.url;
  }

  /** True once audio or results may have been lost. */
  get lost() {
    return this.#lifecycle.lost;
  }

  /** The LinguaError that ended the session; null while it is open, or if it was closed. */
  get error() {
    return this.#lifecycle.error;
  }

  /** The code of the session's room; "" = none. */
  get roomCode() {
    return this.#lifecycle.rooms.code;
  }

  /** The members of the room, as last received. */
  get members() {
    return this.#lifecycle.rooms.members;
  }

  // --- opening and closing -----------------------------------------------------------------------

  /** Connect. Rejects with a LinguaError if no address is reachable, or the mesh refuses the session. */
  async open() {
    await this.#lifecycle.connection.open();
    return this;
  }

  /**
   * Finalize the open utterance, wait for the last results, and close. Idempotent.
   * @param {{withinMs?: number}} [options]  the timeout; later results are abandoned
   */
  close({ withinMs = CLOSE_TIMEOUT_MS } = {}) {
    return this.#lifecycle.close(withinMs);
  }

  // --- audio -------------------------------------------------------------------------------------

  /**
   * Buffer audio and send it as soon as possible. Throws `SLOW_DOWN` if the buffer is full.
   * @param {Int16Array | Uint8Array} audio  PCM16, 16 kHz, mono
   */
  speak(audio) {
    this.#lifecycle.assertNotClosed();
    this.#lifecycle.sender.addAudio(audio);
  }

  /** Finalize the utterance: the audio since the last end is translated. */
  endUtterance() {
    this.#lifecycle.assertNotClosed();
    this.#lifecycle.sender.endUtterance();
  }

  /**
   * Stream all audio of `source`. null in it, and its end, finalize the utterance. Waits while the buffer is full.
   * @param {AsyncIterable<Int16Array | Uint8Array | null> & {dropped?: number}} source  such as
   *   `speechOf(microphone())`
   */
  async stream(source) {
    let dropped = 0;
    for await (const audio of source) {
      if (audio === null) {
        this.endUtterance();
        continue;
      }
      await this.#lifecycle.sender.waitForCapacity(audio.byteLength);
      this.speak(audio);
      if ((source.dropped ?? 0) > dropped) {
        dropped = source.dropped ?? 0;
        this.#lifecycle.reportLoss("audio");
      }
    }
    this.endUtterance();
  }

  // --- results -----------------------------------------------------------------------------------

  /**
   * The outcomes of all utterances, in order, each once; a failed one has `error`. Returns when the session is closed,
   * and throws if it ended with an error.
   * @returns {AsyncGenerator<Result, void, void>}
   */
  results() {
    return this.#lifecycle.receiver.results(() => this.#lifecycle.hasEnded());
  }

  /**
   * Play a result's speech after the results before it, and report start and end to the mesh. Resolves at its end.
   * @param {Result} result
   * @param {{sampleRate?: number}} [options]  of speech in pcm16
   */
  play(result, { sampleRate } = {}) {
    const callbacks = { onStart: () => this.ttsStarted(result), onEnd: () => this.ttsPlayEnded(result) };
    return this.#lifecycle.playback.play(result, callbacks, sampleRate);
  }

  /**
   * Report to the mesh that playback of a result started; for pages that do not use `play`.
   * @param {Result} result
   */
  ttsStarted(result) {
    this.#reportPlayback(result, { type: "tts_started", ts_start_ms: Date.now() });
  }

  /**
   * Report to the mesh that playback of a result ended.
   * @param {Result} result
   */
  ttsPlayEnded(result) {
    this.#reportPlayback(result, { type: "tts_play_ended", ts_end_ms: Date.now() });
  }

  /**
   * @param {Result} result
   * @param {object} message
   */
  #reportPlayback(result, message) {
    if (!result.groupId) return; // the mesh tracks the playback of context groups only
    const { traceId, groupId } = result;
    this.#lifecycle.connection.send({ session_id: this.sessionId, trace_id: traceId, group_id: groupId, ...message });
  }

  // --- rooms -------------------------------------------------------------------------------------

  /**
   * Create a room and become its first member; resolves to its code.
   * @param {import("./session/rooms.js").Member} [member]
   * @returns {Promise<string>}
   */
  async createRoom(member = {}) {
    return (await this.#lifecycle.rooms.create(member)).room_code;
  }

  /**
   * Join a room; resolves to its members.
   * @param {string} roomCode
   * @param {import("./session/rooms.js").Member} [member]
   * @returns {Promise<Record<string, any>[]>}
   */
  async joinRoom(roomCode, member = {}) {
    return (await this.#lifecycle.rooms.join(roomCode, member)).members;
  }

  /** Leave the room. */
  leaveRoom() {
    this.#lifecycle.rooms.leave();
  }

  /**
   * Whether to receive another member's untranslated voice.
   * @param {string} sessionId
   * @param {boolean} wanted
   */
  setRawVoice(sessionId, wanted) {
    const preference = { target_session_id: sessionId, receive_raw_voice: wanted };
    this.#lifecycle.rooms.send({ type: "room_raw_voice_preference", ...preference });
  }

  /**
   * Send a WebRTC message to another member. Messages of other members come as `event`; their `to` is the sender.
   * @param {"offer" | "answer" | "ice"} kind
   * @param {string} to  the member's session id
   * @param {unknown} payload
   */
  signal(kind, to, payload) {
    this.#lifecycle.rooms.send({ type: `webrtc_${kind}`, to, [kind === "ice" ? "candidate" : "sdp"]: payload });
  }
}
