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

import { Playback } from "./playback.js";
import { SpokenAudio } from "./session-audio.js";
import { Connection } from "./session-connection.js";
import { LinguaError, errorOf, isObject } from "./session-errors.js";
import { binaryFrame, chunkMessage } from "./session-frames.js";
import { ResultOrder } from "./session-results.js";
import { Rooms } from "./session-rooms.js";
import { News } from "./news.js";

export { LinguaError } from "./session-errors.js";
export { Microphone, microphone } from "./microphone.js";
export { Speech, SpeechGate, speechOf } from "./speech-gate.js";

/** @typedef {import("./session-results.js").Result} Result */
/** @typedef {import("./session-connection.js").State} State */

const CLIENT_VERSION = "lingua-web-0.1.0";
const PLATFORM = "web";
const SAMPLE_RATE = 16_000;
const CODEC = "pcm16";
/** Results that nobody has read yet; beyond, the oldest is dropped and `lost` is told. */
const RESULTS_UNREAD_MAX = 1_000;
/** Bytes that may wait inside the socket; beyond, chunks wait here. */
const BUFFERED_BYTES_MAX = 1024 * 1024;
const BUFFERED_WAIT_MS = 50;
/** A little more than the mesh takes to tell the last results. */
const CLOSE_MS = 12_000;
/** Codes that end the session. */
const FATAL = new Set(["SESSION_SUPERSEDED", "SESSION_CLOSED", "INVALID_SESSION"]);

/**
 * @typedef {object} SessionOptions
 * @property {string} tgt  the language to translate to
 * @property {string} [src]  the language that is spoken; "auto" lets the node find out
 * @property {Record<string, unknown>} [init]  more fields of session_init, such as tenant_id, pairing_code, mode
 * @property {number} [keptBytesMax]  audio that is kept until its utterance has ended
 * @property {import("./session-connection.js").Timing} [timing]
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
  #audio;
  #order = new ResultOrder();
  #connection;
  #rooms;
  #playback = new Playback();
  #resumeToken = "";
  #useBinaryFrames = false;
  /** @type {Result[]} */
  #unread = [];
  #toldResults = new News();
  #sentAudio = new News();
  #closeAck = new News();
  /** @type {Promise<void> | null} */
  #closing = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #nextTurn;

  /**
   * @param {string | string[]} urls  ws://host:port of any edge, or of several
   * @param {SessionOptions} options
   */
  constructor(urls, options) {
    super();
    this.#options = { src: "auto", ...options };
    this.#audio = new SpokenAudio({ sampleRate: SAMPLE_RATE, keptBytesMax: options.keptBytesMax });
    this.#rooms = new Rooms((message) => this.#send(message), (name, detail) => this.#tell(name, detail));
    const owner = {
      greeting: () => this.#greeting(),
      heartbeat: () => ({ type: "client_heartbeat", session_id: this.sessionId, timestamp: Date.now() }),
      onWelcome: (/** @type {Record<string, any>} */ ack) => this.#onWelcome(ack),
      onMessage: (/** @type {Record<string, any>} */ message) => this.#onMessage(message),
      onState: (/** @type {State} */ state, /** @type {LinguaError | null} */ error) => this.#onState(state, error),
    };
    this.#connection = new Connection([urls].flat(), owner, options.timing);
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
    if (this.#connection.send(goodbye)) await this.#closeAck.next(withinMs);
    this.#connection.end(null);
  }

  #greeting() {
    const { src, tgt, init } = this.#options;
    const { lastIndex, lastSeq } = this.#order;
    // A pairing code is good for once; the session that is resumed has its node.
    const marks = { last_index: lastIndex, last_seq: lastSeq };
    const resume = { resume_token: this.#resumeToken, ...marks, pairing_code: undefined };
    return {
      type: "session_init",
      client_version: CLIENT_VERSION,
      platform: PLATFORM,
      src_lang: src,
      tgt_lang: tgt,
      audio_formats: [CODEC],
      sample_rate: SAMPLE_RATE,
      binary_frames: true,
      resumable: true,
      ...init,
      ...(this.#resumeToken ? resume : {}),
    };
  }

  /** @param {Record<string, any>} ack */
  #onWelcome(ack) {
    const codec = ack.negotiated_codec ?? ack.negotiated_audio_format ?? CODEC;
    const rate = ack.negotiated_sample_rate ?? SAMPLE_RATE;
    if (codec !== CODEC || rate !== SAMPLE_RATE) {
      throw new LinguaError("UNSUPPORTED_FEATURE", `the mesh wants ${codec} at ${rate} Hz, which is not spoken here`);
    }
    const before = this.sessionId;
    let lost = "";
    if (ack.resumed === true) {
      const complete = this.#audio.onResumed(ack.resend_from_seq ?? this.#order.lastSeq + 1);
      this.#order.resume(ack.session_id, ack.lost === true);
      lost = ack.lost === true ? "results" : complete ? "" : "audio";
    } else {
      this.#audio.onRestarted();
      this.#order.restart(ack.session_id);
      lost = before ? "session" : "";
    }
    this.#resumeToken = ack.resume_token ?? "";
    this.#useBinaryFrames = ack.use_binary_frame === true;
    this.#rooms.enter(ack.room_code ?? "");
    if (lost) this.#tellLost(lost);
  }

  /**
   * @param {State} state
   * @param {LinguaError | null} error
   */
  #onState(state, error) {
    if (state !== "open") clearTimeout(this.#nextTurn);
    if (state === "reconnecting") {
      this.#rooms.fail(new LinguaError("WS_DISCONNECTED", "the connection is lost"));
      if (this.#closing) return this.#connection.end(null);
    }
    if (state === "closed") {
      this.error = error;
      this.#rooms.fail(error ?? new LinguaError("SESSION_CLOSED", "the session was closed"));
      void this.#playback.close();
      for (const news of [this.#toldResults, this.#sentAudio, this.#closeAck]) news.tell();
    }
    this.#tell("state", { state, url: this.url, error });
    if (state === "open") this.#sendAudio();
  }

  // --- speaking ----------------------------------------------------------------------------------

  /**
   * Say more; it is sent as soon as it can be. `SLOW_DOWN` if too much waits already.
   * @param {Int16Array | Uint8Array} audio  PCM16, 16 kHz, mono
   */
  speak(audio) {
    this.#assertAlive();
    const bytes = bytesOf(audio);
    if (!this.#audio.add(bytes, Date.now())) {
      throw new LinguaError("SLOW_DOWN", `${this.#audio.keptBytes} bytes of audio wait to be sent`);
    }
    this.#sendAudio();
  }

  /** What was said until now is an utterance: translate it. */
  endUtterance() {
    this.#assertAlive();
    this.#audio.endUtterance(Date.now());
    this.#sendAudio();
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
      while (this.state !== "closed" && !this.#audio.hasRoomFor(audio.byteLength)) await this.#sentAudio.next();
      this.speak(audio);
      if ((source.dropped ?? 0) > dropped) {
        dropped = source.dropped ?? 0;
        this.#tellLost("audio");
      }
    }
    this.endUtterance();
  }

  #sendAudio() {
    clearTimeout(this.#nextTurn);
    if (this.state !== "open") return;
    let waitMs = /** @type {number | null} */ (BUFFERED_WAIT_MS);
    if (this.#connection.bufferedBytes < BUFFERED_BYTES_MAX) {
      const due = this.#audio.due(performance.now());
      const form = this.#useBinaryFrames ? binaryFrame : chunkMessage;
      for (const chunk of due.chunks) this.#connection.send(form(this.sessionId, chunk));
      waitMs = due.waitMs;
      if (due.chunks.length > 0) this.#sentAudio.tell();
    }
    if (waitMs !== null) this.#nextTurn = setTimeout(() => this.#sendAudio(), waitMs);
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
  async *results() {
    while (true) {
      const result = this.#unread.shift();
      if (result) yield result;
      else if (this.error) throw this.error;
      else if (this.state === "closed") return;
      else await this.#toldResults.next();
    }
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
   * @param {import("./session-rooms.js").Member} [member]
   * @returns {Promise<string>}
   */
  async createRoom(member = {}) {
    return (await this.#rooms.create(member)).room_code;
  }

  /**
   * Enter a room; resolves to its members.
   * @param {string} roomCode
   * @param {import("./session-rooms.js").Member} [member]
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

  // --- listening ---------------------------------------------------------------------------------

  /** @param {Record<string, any>} message */
  #onMessage(message) {
    switch (message.type) {
      case "translation_result":
      case "missing_result":
        return this.#onResult(message);
      case "utterance_ended":
        this.#order.onUtteranceEnded(message);
        return this.#audio.onEnded(this.#order.lastSeq);
      case "server_heartbeat":
        return;
      case "session_close_ack":
        return this.#closeAck.tell();
      case "error":
        this.#onError(message);
        break;
      case "ui_event":
        if (message.event === "ERROR") this.#order.onReason(message);
        break;
      case "backpressure":
        this.#audio.onBackpressure(message.action, message.resume_after_ms, performance.now());
        break;
      default:
        if (this.#rooms.onMessage(message)) return;
    }
    this.#tell("event", message);
  }

  /** @param {Record<string, any>} message */
  #onResult(message) {
    if (!Number.isInteger(message.utterance_index)) return;
    const { results, heard, ack } = this.#order.onResult(message);
    this.#unread.push(...results);
    while (this.#unread.length > RESULTS_UNREAD_MAX) {
      this.#unread.shift();
      this.#tellLost("results");
    }
    this.#audio.onEnded(this.#order.lastSeq);
    if (ack) this.#connection.send(ack);
    if (results.length > 0) this.#toldResults.tell();
    if (heard) this.#tell("heard", heard);
  }

  /** @param {Record<string, any>} message */
  #onError(message) {
    const details = isObject(message.details) ? message.details : {};
    if (FATAL.has(message.code)) this.#connection.end(errorOf(/** @type {any} */ (message)));
    else if (message.code === "SLOW_DOWN" && Number.isInteger(details.seq)) {
      this.#audio.onRefused(/** @type {number} */ (details.seq), performance.now());
      this.#sendAudio();
    } else this.#order.onReason(message);
  }

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

/**
 * A copy, because the caller may use its buffer again.
 * @param {Int16Array | Uint8Array} audio
 */
function bytesOf(audio) {
  if (!(audio instanceof Int16Array || audio instanceof Uint8Array) || audio.byteLength % 2 !== 0) {
    throw new LinguaError("INVALID_AUDIO", "this is not PCM16");
  }
  return new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength).slice();
}
