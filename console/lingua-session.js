/**
 * The session module: speak to the mesh from a web page and get translations.
 *
 *     import { Session, microphone, speechOf } from "./lingua-session.js";
 *
 *     const session = new Session("ws://127.0.0.1:5010", { src: "en", tgt: "es" });
 *     await session.open();
 *     session.stream(speechOf(microphone()));
 *     for await (const result of session.results()) console.log(result.index, result.textTranslated);
 *
 * A connection that is lost comes back by itself, on the next address if there are several: what was not heard is said
 * again, what was not told is told again, and each result comes once. docs/browser.md tells the rest.
 */

import { Playback } from "./audio/playback.js";
import { Connection } from "./session/connection.js";
import { LinguaError } from "./session/errors.js";
import { SAMPLE_RATE, checkAgreed, sessionInit } from "./session/handshake.js";
import { Hearing } from "./session/receiver.js";
import { ResultOrder } from "./session/results.js";
import { Rooms } from "./session/rooms.js";
import { Sender } from "./session/sender.js";

export { LinguaError } from "./session/errors.js";
export { Microphone, microphone } from "./audio/microphone.js";
export { Speech, SpeechGate, speechOf } from "./audio/speech-gate.js";

/** @typedef {import("./session/results.js").Result} Result */
/** @typedef {import("./session/connection.js").State} State */

/** A little more than the mesh takes to tell the last results. */
const CLOSE_MS = 12_000;

/**
 * @typedef {object} SessionOptions
 * @property {string} tgt  the language to translate to
 * @property {string} [src]  the language that is spoken; "auto" lets the node find out
 * @property {Record<string, unknown>} [init]  more fields of session_init, such as tenant_id, pairing_code, mode
 * @property {number} [keptBytesMax]  audio that is kept until its utterance has ended
 * @property {import("./session/connection.js").Timing} [timing]
 */

/**
 * One speaker's conversation with the mesh. Events, each with its news in `detail`:
 *   state    {state, url, error}: "opening", "open", "reconnecting", "closed"
 *   lost     {reason}: something that was said or told may be lost
 *   members  {roomCode, members}: who is in the room now
 *   heard    a Result: what another member said
 *   event    any other message of the mesh: ui_event, asr_partial, error, backpressure, webrtc_offer, ...
 */
export class Session extends EventTarget {
  /** True once something may have been lost. */
  lost = false;
  /** Why the session ended, unless it was closed. @type {LinguaError | null} */
  error = null;
  #options;
  #connection;
  #order = new ResultOrder();
  #sender;
  #rooms;
  #hearing;
  #playback = new Playback();
  #resumeToken = "";
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * @param {string | string[]} urls  ws://host:port of any edge, or of several
   * @param {SessionOptions} options
   */
  constructor(urls, options) {
    super();
    this.#options = { src: "auto", ...options };
    const owner = {
      greeting: () => sessionInit(this.#options, this.#resumeToken, this.#order),
      heartbeat: () => ({ type: "client_heartbeat", session_id: this.sessionId, timestamp: Date.now() }),
      onWelcome: (/** @type {Record<string, any>} */ ack) => this.#onWelcome(ack),
      onMessage: (/** @type {Record<string, any>} */ message) => this.#hearing.onMessage(message),
      onState: (/** @type {State} */ state, /** @type {LinguaError | null} */ error) => this.#onState(state, error),
    };
    const tell = (/** @type {string} */ name, /** @type {unknown} */ detail) => this.#tell(name, detail);
    const tellLost = (/** @type {string} */ reason) => this.#tellLost(reason);
    const connection = new Connection([urls].flat(), owner, options.timing);
    const order = this.#order;
    const sender = new Sender(connection, order, { sampleRate: SAMPLE_RATE, keptBytesMax: options.keptBytesMax });
    const rooms = new Rooms((message) => this.#send(message), tell);
    this.#connection = connection;
    this.#sender = sender;
    this.#rooms = rooms;
    this.#hearing = new Hearing({ connection, order, sender, rooms, tell, tellLost });
  }

  /** The id that the mesh gave; "" before the session is open. */
  get sessionId() {
    return this.#order.sessionId;
  }

  /** @returns {State} */
  get state() {
    return this.#connection.state;
  }

  /** The edge in use, or the next to be tried. */
  get url() {
    return this.#connection.url;
  }

  /** The code of the room that the session is in; "" = none. */
  get roomCode() {
    return this.#rooms.code;
  }

  /** Everybody in the room, as the mesh told last. */
  get members() {
    return this.#rooms.members;
  }

  // --- life --------------------------------------------------------------------------------------

  /** Connect; a LinguaError if no address answers, or the mesh refuses the session. */
  async open() {
    await this.#connection.open();
    return this;
  }

  /**
   * End what is being said, wait for the last results, and say goodbye. Safe to repeat.
   * @param {{withinMs?: number}} [options]  what did not come until then is given up
   */
  close({ withinMs = CLOSE_MS } = {}) {
    this.#closing ??= this.#close(withinMs);
    return this.#closing;
  }

  /** @param {number} withinMs */
  async #close(withinMs) {
    const goodbye = { type: "session_close", session_id: this.sessionId, reason: "client closed" };
    if (this.#connection.send(goodbye)) await this.#hearing.closeAck.next(withinMs);
    this.#connection.end(null);
  }

  /** @param {Record<string, any>} ack */
  #onWelcome(ack) {
    checkAgreed(ack);
    const before = this.sessionId;
    const complete = this.#sender.onWelcome(ack);
    let lost = "";
    if (ack.resumed === true) {
      this.#order.resume(ack.session_id, ack.lost === true);
      lost = ack.lost === true ? "results" : complete ? "" : "audio";
    } else {
      this.#order.restart(ack.session_id);
      lost = before ? "session" : "";
    }
    this.#resumeToken = ack.resume_token ?? "";
    this.#rooms.enter(ack.room_code ?? "");
    if (lost) this.#tellLost(lost);
  }

  /**
   * @param {State} state
   * @param {LinguaError | null} error
   */
  #onState(state, error) {
    if (state !== "open") this.#sender.rest();
    if (state === "reconnecting") {
      this.#rooms.fail(new LinguaError("WS_DISCONNECTED", "the connection is lost"));
      if (this.#closing) return this.#connection.end(null);
    }
    if (state === "closed") {
      this.error = error;
      this.#rooms.fail(error ?? new LinguaError("SESSION_CLOSED", "the session was closed"));
      void this.#playback.close();
      this.#hearing.end();
    }
    this.#tell("state", { state, url: this.url, error });
    if (state === "open") this.#sender.send();
  }

  // --- speaking ----------------------------------------------------------------------------------

  /**
   * Say more; it is sent as soon as it can be. `SLOW_DOWN` if too much waits already.
   * @param {Int16Array | Uint8Array} audio  PCM16, 16 kHz, mono
   */
  speak(audio) {
    this.#assertAlive();
    this.#sender.say(audio);
  }

  /** What was said until now is an utterance: translate it. */
  endUtterance() {
    this.#assertAlive();
    this.#sender.endUtterance();
  }

  /**
   * Say all that comes from `source`, and end the utterance where it gives null, and with it. Waits while too much is
   * unsent.
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
      await this.#sender.roomFor(audio.byteLength);
      this.speak(audio);
      if ((source.dropped ?? 0) > dropped) {
        dropped = source.dropped ?? 0;
        this.#tellLost("audio");
      }
    }
    this.endUtterance();
  }

  #assertAlive() {
    if (this.state === "closed") throw this.error ?? new LinguaError("SESSION_CLOSED", "the session was closed");
  }

  // --- results -----------------------------------------------------------------------------------

  /**
   * The ends of all utterances, in order, each once; those that failed have `error` set. Ends when the session is
   * closed, and throws if it ended by an error.
   * @returns {AsyncGenerator<Result, void, void>}
   */
  results() {
    return this.#hearing.results(() => {
      if (this.error) throw this.error;
      return this.state === "closed";
    });
  }

  /**
   * Play a result's speech, after those before it, and tell the mesh; resolves when it is over.
   * @param {Result} result
   * @param {{sampleRate?: number}} [options]  of speech in pcm16
   */
  play(result, { sampleRate } = {}) {
    const tell = { onStart: () => this.ttsStarted(result), onEnd: () => this.ttsPlayEnded(result) };
    return this.#playback.play(result, tell, sampleRate);
  }

  /**
   * Tell the mesh that a result is being played; for pages that do not use `play`.
   * @param {Result} result
   */
  ttsStarted(result) {
    this.#tellPlaying(result, { type: "tts_started", ts_start_ms: Date.now() });
  }

  /**
   * Tell the mesh that a result was played.
   * @param {Result} result
   */
  ttsPlayEnded(result) {
    this.#tellPlaying(result, { type: "tts_play_ended", ts_end_ms: Date.now() });
  }

  /**
   * @param {Result} result
   * @param {object} message
   */
  #tellPlaying(result, message) {
    if (!result.groupId) return; // it belongs to no group, so nobody asks
    const { traceId, groupId } = result;
    this.#connection.send({ session_id: this.sessionId, trace_id: traceId, group_id: groupId, ...message });
  }

  // --- rooms -------------------------------------------------------------------------------------

  /**
   * Open a room and be its first member; resolves to its code.
   * @param {import("./session/rooms.js").Member} [member]
   * @returns {Promise<string>}
   */
  async createRoom(member = {}) {
    return (await this.#rooms.create(member)).room_code;
  }

  /**
   * Enter a room; resolves to its members.
   * @param {string} roomCode
   * @param {import("./session/rooms.js").Member} [member]
   * @returns {Promise<Record<string, any>[]>}
   */
  async joinRoom(roomCode, member = {}) {
    return (await this.#rooms.join(roomCode, member)).members;
  }

  /** Leave the room. */
  leaveRoom() {
    this.#rooms.leave();
  }

  /**
   * Whether to receive another member's own voice.
   * @param {string} sessionId
   * @param {boolean} wanted
   */
  setRawVoice(sessionId, wanted) {
    this.#rooms.say({ type: "room_raw_voice_preference", target_session_id: sessionId, receive_raw_voice: wanted });
  }

  /**
   * Pass a WebRTC message to another member. What others pass comes as `event`, and its `to` says from whom.
   * @param {"offer" | "answer" | "ice"} kind
   * @param {string} to  the member's session id
   * @param {unknown} payload
   */
  signal(kind, to, payload) {
    this.#rooms.say({ type: `webrtc_${kind}`, to, [kind === "ice" ? "candidate" : "sdp"]: payload });
  }

  /** @param {object} message */
  #send(message) {
    this.#assertAlive();
    if (!this.#connection.send(message)) throw new LinguaError("WS_DISCONNECTED", "the connection is lost");
  }

  // --- telling -----------------------------------------------------------------------------------

  /** @param {string} reason */
  #tellLost(reason) {
    this.lost = true;
    this.#tell("lost", { reason });
  }

  /**
   * @param {string} name
   * @param {unknown} detail
   */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
