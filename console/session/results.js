/**
 * What a session was told: each of its utterances ends once and in order, each utterance that it hears of others once.
 * Pure: messages in; results, acknowledgements and the end of audio out.
 */

import { LinguaError, errorOf, isObject } from "./errors.js";

/** Utterances that may end before an earlier one; the mesh lets no more wait. */
const EARLY_MAX = 200;
/** Utterances whose failure was announced and has not yet had its turn. */
const REASONS_MAX = 200;
/** Others that are heard, and how many of their latest utterances are remembered. */
const SPEAKERS_MAX = 64;
const HEARD_MAX = 200;

/**
 * The end of one utterance: a translation, or `error` and empty texts.
 * @typedef {object} Result
 * @property {number} index  from 0 on; a session that takes the place of a lost one goes on counting
 * @property {string} sessionId  of whoever spoke
 * @property {string} textAsr
 * @property {string} textTranslated
 * @property {string} ttsAudio  base64, "" if there is none
 * @property {string} ttsFormat
 * @property {string} jobId
 * @property {string} traceId
 * @property {string} groupId
 * @property {LinguaError | null} error
 * @property {Record<string, any>} message  as the mesh sent it
 */

/**
 * What follows from a message.
 * @typedef {object} Told
 * @property {Result[]} results  of the own session
 * @property {Result | null} heard  of somebody else
 * @property {{type: "result_ack", session_id: string, utterance_index: number} | null} ack
 */

/** Which utterances have ended, for one session and for those whom it hears. */
export class ResultOrder {
  sessionId = "";
  /** The mesh's last index up to which all have ended, and the last chunk of its audio. */
  lastIndex = -1;
  lastSeq = -1;
  /** The mesh's index of the last result. In a room it may be ahead: what others get ends without one, and later. */
  #lastTold = -1;
  /** A new session numbers from 0 again; the user's indices go on. */
  #offset = 0;
  /** Some results will not be told any more. */
  #isLossy = false;
  /** @type {Map<number, number>} index -> last chunk, of those that ended before an earlier one */
  #early = new Map();
  /** @type {Map<number, LinguaError>} why an utterance failed, until its turn comes */
  #reasons = new Map();
  /** @type {Map<string, Set<number>>} speaker -> indices heard */
  #heard = new Map();

  /**
   * The session goes on.
   * @param {string} sessionId
   * @param {boolean} isLossy  results are missing between the last one and the next
   */
  resume(sessionId, isLossy) {
    this.sessionId = sessionId;
    this.#isLossy ||= isLossy;
  }

  /**
   * Another session takes its place.
   * @param {string} sessionId
   */
  restart(sessionId) {
    this.sessionId = sessionId;
    this.#offset += Math.max(this.lastIndex, this.#lastTold) + 1;
    this.lastIndex = this.lastSeq = this.#lastTold = -1;
    this.#isLossy = false;
    this.#early.clear();
    this.#reasons.clear();
  }

  /**
   * `translation_result` or `missing_result`.
   * @param {Record<string, any>} message
   * @returns {Told}
   */
  onResult(message) {
    if (message.session_id !== this.sessionId) return this.#onHeard(message);
    const index = message.utterance_index;
    const results = [];
    if (index > this.#lastTold && index > this.lastIndex) {
      // They come in order, so those before it that were lost will not come any more.
      if (this.#isLossy) results.push(...this.#lostBefore(index));
      results.push(this.#resultOf(message));
      this.#lastTold = index;
      this.#end(index, message.last_seq);
    }
    return { results, heard: null, ack: ack(this.sessionId, Math.max(this.#lastTold, index)) };
  }

  /**
   * `utterance_ended`: others got what was said; there is no result for the speaker.
   * @param {Record<string, any>} message
   */
  onUtteranceEnded(message) {
    if (message.session_id !== this.sessionId || message.utterance_index <= this.lastIndex) return;
    this.#end(message.utterance_index, message.last_seq);
  }

  /**
   * `error`, or `ui_event` ERROR: why an utterance fails. Its `missing_result` comes at its turn.
   * @param {Record<string, any>} message
   */
  onReason(message) {
    const event = message.type === "ui_event";
    const where = event ? message : isObject(message.details) ? message.details : {};
    const index = where.utterance_index;
    const own = (where.session_id ?? this.sessionId) === this.sessionId;
    if (!own || !Number.isInteger(index) || index <= this.lastIndex) return;
    if (event && this.#reasons.has(index)) return; // `error` says more
    dropOldest(this.#reasons, REASONS_MAX - 1);
    const error = event ? new LinguaError(message.error_code ?? "INTERNAL_ERROR", message.hint ?? "") : null;
    this.#reasons.set(index, error ?? errorOf(/** @type {any} */ (message)));
  }

  /** @param {number} index */
  #lostBefore(index) {
    this.#isLossy = false;
    const results = [];
    for (let lost = Math.max(this.lastIndex + 1, index - EARLY_MAX); lost < index; lost += 1) {
      if (!this.#early.has(lost)) results.push(this.#failure(lost, {}, "lost"));
    }
    this.#endUpTo(index - 1);
    return results;
  }

  /**
   * @param {number} index
   * @param {number | undefined} lastSeq
   */
  #end(index, lastSeq) {
    this.#early.set(index, lastSeq ?? -1);
    // More than may be missing at once: the first of them will not come.
    if (this.#early.size > EARLY_MAX) this.#endUpTo(Math.min(...this.#early.keys()) - 1);
    this.#endUpTo(this.lastIndex);
  }

  /**
   * All up to that index have ended, and those that follow without a gap.
   * @param {number} index
   */
  #endUpTo(index) {
    this.lastIndex = Math.max(this.lastIndex, index);
    while (this.#early.has(this.lastIndex + 1)) this.lastIndex += 1;
    for (const [ended, lastSeq] of this.#early) {
      if (ended > this.lastIndex) continue;
      this.lastSeq = Math.max(this.lastSeq, lastSeq);
      this.#early.delete(ended);
    }
    const told = Math.max(this.lastIndex, this.#lastTold);
    for (const ended of this.#reasons.keys()) if (ended <= told) this.#reasons.delete(ended);
  }

  /**
   * @param {Record<string, any>} message
   * @returns {Told}
   */
  #onHeard(message) {
    const speaker = message.session_id;
    const index = message.utterance_index;
    const known = this.#heard.get(speaker) ?? new Set();
    const isNew = !known.has(index);
    known.add(index);
    if (known.size > HEARD_MAX) known.delete(Math.min(...known));
    this.#heard.delete(speaker); // so that whoever was silent longest comes first
    this.#heard.set(speaker, known);
    dropOldest(this.#heard, SPEAKERS_MAX);
    return { results: [], heard: isNew ? this.#resultOf(message) : null, ack: ack(speaker, Math.max(...known)) };
  }

  /** @param {Record<string, any>} message */
  #resultOf(message) {
    const index = message.utterance_index;
    if (message.type === "missing_result") return this.#failure(index, message, String(message.reason));
    return result(this.#indexOf(index, message.session_id), message, null);
  }

  /**
   * @param {number} index
   * @param {Record<string, any>} message
   * @param {string} reason
   */
  #failure(index, message, reason) {
    const whole = { session_id: this.sessionId, ...message };
    const announced = whole.session_id === this.sessionId ? this.#reasons.get(index) : undefined;
    const error = announced ?? new LinguaError("MISSING_RESULT", reason, { details: { reason } });
    return result(this.#indexOf(index, whole.session_id), whole, error);
  }

  /**
   * The user's index.
   * @param {number} index
   * @param {string} sessionId
   */
  #indexOf(index, sessionId) {
    return sessionId === this.sessionId ? index + this.#offset : index;
  }
}

/**
 * @param {number} index
 * @param {Record<string, any>} message
 * @param {LinguaError | null} error
 * @returns {Result}
 */
function result(index, message, error) {
  return {
    index,
    sessionId: message.session_id,
    textAsr: message.text_asr ?? "",
    textTranslated: message.text_translated ?? "",
    ttsAudio: message.tts_audio ?? "",
    ttsFormat: message.tts_format ?? "pcm16",
    jobId: message.job_id ?? "",
    traceId: message.trace_id ?? "",
    groupId: message.group_id ?? "",
    error,
    message,
  };
}

/**
 * @param {Map<any, unknown>} map
 * @param {number} sizeMax
 */
function dropOldest(map, sizeMax) {
  for (const oldest of map.keys()) {
    if (map.size <= sizeMax) return;
    map.delete(oldest);
  }
}

/**
 * @param {string} sessionId
 * @param {number} index
 * @returns {{type: "result_ack", session_id: string, utterance_index: number}}
 */
function ack(sessionId, index) {
  return { type: "result_ack", session_id: sessionId, utterance_index: index };
}
