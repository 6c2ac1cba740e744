/**
 * Orders and deduplicates results: each utterance of the session ends once and in order, each utterance of a peer
 * (another member of the room) is reported once. Pure: messages in; results, acknowledgements and the position up to
 * which audio is acknowledged out.
 */

import { LinguaError, errorFrom, isObject } from "./errors.js";
import { fromBase64 } from "./frames.js";

/** Bound on utterances that end out of order; the mesh buffers no more. */
const EARLY_MAX = 200;
/** Bound on announced errors whose `missing_result` is still to come. */
const ANNOUNCED_ERRORS_MAX = 200;
/** For the deduplication of peers' results: the number of peers, and of recent indices per peer. */
const PEERS_MAX = 64;
const PEER_INDICES_MAX = 200;

/**
 * The outcome of one utterance: a translation, or `error` and empty texts.
 * @typedef {object} Result
 * @property {number} index  from 0 on; a session that replaces a lost one continues the count
 * @property {string} sessionId  of the speaker
 * @property {string} textAsr
 * @property {string} textTranslated
 * @property {Uint8Array<ArrayBuffer>} ttsAudio  empty if there is none; throws `INVALID_AUDIO` if it cannot be decoded
 * @property {string} ttsFormat
 * @property {string} jobId
 * @property {string} traceId
 * @property {string} groupId
 * @property {LinguaError | null} error
 * @property {Record<string, any>} message  as the mesh sent it
 */

/**
 * The effects of a result message.
 * @typedef {object} ResultEffects
 * @property {Result[]} own  results of this session
 * @property {Result | null} peer  a new result of another member
 * @property {{type: "result_ack", session_id: string, utterance_index: number}} ack
 */

/** Tracks which utterances have ended, for one session and its peers. */
export class ResultOrder {
  sessionId = "";
  /** The last wire index up to which all utterances have ended, and the last chunk of their audio. */
  lastIndex = -1;
  lastSeq = -1;
  /** The wire index of the last result. In a room `lastIndex` may be behind: `utterance_ended` comes out of order. */
  #lastResultIndex = -1;
  /** A new session numbers from 0 again; the user's indices continue: index = wire index + offset. */
  #indexOffset = 0;
  /** The mesh has lost results between the last one and the next. */
  #hasGap = false;
  /** @type {Map<number, number>} wire index -> last chunk, of utterances that ended before an earlier one */
  #early = new Map();
  /** @type {Map<number, LinguaError>} wire index -> error, until its `missing_result` comes */
  #announcedErrors = new Map();
  /** @type {Map<string, Set<number>>} peer -> recent indices; the peer silent for longest comes first */
  #peerIndices = new Map();

  /**
   * The session was resumed.
   * @param {string} sessionId
   * @param {boolean} hasGap  the mesh has lost results between the last one and the next
   */
  resume(sessionId, hasGap) {
    this.sessionId = sessionId;
    this.#hasGap ||= hasGap;
  }

  /**
   * A new session replaces the lost one.
   * @param {string} sessionId
   */
  restart(sessionId) {
    this.sessionId = sessionId;
    this.#indexOffset += Math.max(this.lastIndex, this.#lastResultIndex) + 1;
    this.lastIndex = this.lastSeq = this.#lastResultIndex = -1;
    this.#hasGap = false;
    this.#early.clear();
    this.#announcedErrors.clear();
  }

  /**
   * `translation_result` or `missing_result`. A duplicate is acknowledged again and otherwise ignored.
   * @param {Record<string, any>} message
   * @returns {ResultEffects}
   */
  onResult(message) {
    if (message.session_id !== this.sessionId) return this.#onPeerResult(message);
    const index = message.utterance_index;
    const own = [];
    if (index > this.#lastResultIndex && index > this.lastIndex) {
      // The mesh sends results in order, so earlier ones that are missing now are lost.
      if (this.#hasGap) own.push(...this.#lostBefore(index));
      own.push(this.#resultOf(message));
      this.#lastResultIndex = index;
      this.#end(index, message.last_seq);
    }
    return { own, peer: null, ack: resultAck(this.sessionId, Math.max(this.#lastResultIndex, index)) };
  }

  /**
   * `utterance_ended`: the results went to other members of the room; the speaker gets none.
   * @param {Record<string, any>} message
   */
  onUtteranceEnded(message) {
    if (message.session_id !== this.sessionId || message.utterance_index <= this.lastIndex) return;
    this.#end(message.utterance_index, message.last_seq);
  }

  /**
   * `error`, or `ui_event` ERROR: why an utterance failed. Its `missing_result` follows in order.
   * @param {Record<string, any>} message
   */
  onErrorAnnounced(message) {
    const isEvent = message.type === "ui_event";
    const scope = isEvent ? message : isObject(message.details) ? message.details : {};
    const index = scope.utterance_index;
    const isOwn = (scope.session_id ?? this.sessionId) === this.sessionId;
    if (!isOwn || !Number.isInteger(index) || index <= this.lastIndex) return;
    if (isEvent && this.#announcedErrors.has(index)) return; // `error` has more details
    evictOldest(this.#announcedErrors, ANNOUNCED_ERRORS_MAX - 1);
    const error = isEvent ? new LinguaError(message.error_code ?? "INTERNAL_ERROR", message.hint ?? "") : null;
    this.#announcedErrors.set(index, error ?? errorFrom(/** @type {any} */ (message)));
  }

  /**
   * Failures for the lost results before that index.
   * @param {number} index
   */
  #lostBefore(index) {
    this.#hasGap = false;
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
    // More than the mesh buffers: the missing indices before the first of them are lost.
    if (this.#early.size > EARLY_MAX) this.#endUpTo(Math.min(...this.#early.keys()) - 1);
    this.#endUpTo(this.lastIndex);
  }

  /**
   * All utterances up to that index have ended, and those that follow without a gap.
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
    const doneIndex = Math.max(this.lastIndex, this.#lastResultIndex);
    for (const index of this.#announcedErrors.keys()) if (index <= doneIndex) this.#announcedErrors.delete(index);
  }

  /**
   * @param {Record<string, any>} message
   * @returns {ResultEffects}
   */
  #onPeerResult(message) {
    const peer = message.session_id;
    const index = message.utterance_index;
    const recent = this.#peerIndices.get(peer) ?? new Set();
    const isNew = !recent.has(index);
    recent.add(index);
    if (recent.size > PEER_INDICES_MAX) recent.delete(Math.min(...recent));
    this.#peerIndices.delete(peer); // moves it to the end: the least recently used peer is evicted
    this.#peerIndices.set(peer, recent);
    evictOldest(this.#peerIndices, PEERS_MAX);
    return { own: [], peer: isNew ? this.#resultOf(message) : null, ack: resultAck(peer, Math.max(...recent)) };
  }

  /** @param {Record<string, any>} message */
  #resultOf(message) {
    const index = message.utterance_index;
    if (message.type === "missing_result") return this.#failure(index, message, String(message.reason));
    return makeResult(this.#indexOf(index, message.session_id), message, null);
  }

  /**
   * @param {number} index
   * @param {Record<string, any>} message
   * @param {string} reason
   */
  #failure(index, message, reason) {
    const complete = { session_id: this.sessionId, ...message };
    const announced = complete.session_id === this.sessionId ? this.#announcedErrors.get(index) : undefined;
    const error = announced ?? new LinguaError("MISSING_RESULT", reason, { details: { reason } });
    return makeResult(this.#indexOf(index, complete.session_id), complete, error);
  }

  /**
   * The user's index of a wire index.
   * @param {number} index
   * @param {string} sessionId
   */
  #indexOf(index, sessionId) {
    return sessionId === this.sessionId ? index + this.#indexOffset : index;
  }
}

/**
 * @param {number} index
 * @param {Record<string, any>} message
 * @param {LinguaError | null} error
 * @returns {Result}
 */
function makeResult(index, message, error) {
  /** @type {Uint8Array<ArrayBuffer> | null} */
  let speech = null;
  return {
    index,
    sessionId: message.session_id,
    textAsr: message.text_asr ?? "",
    textTranslated: message.text_translated ?? "",
    get ttsAudio() {
      return (speech ??= speechOf(message));
    },
    ttsFormat: message.tts_format ?? "pcm16",
    jobId: message.job_id ?? "",
    traceId: message.trace_id ?? "",
    groupId: message.group_id ?? "",
    error,
    message,
  };
}

/**
 * The speech of a result: raw in a binary message, base64 in JSON.
 * @param {Record<string, any>} message
 * @returns {Uint8Array<ArrayBuffer>}
 */
function speechOf(message) {
  const audio = message.tts_audio ?? "";
  if (audio instanceof Uint8Array) return /** @type {Uint8Array<ArrayBuffer>} */ (audio);
  try {
    return fromBase64(audio);
  } catch {
    throw new LinguaError("INVALID_AUDIO", "the speech is not base64");
  }
}

/**
 * @param {Map<any, unknown>} map
 * @param {number} sizeMax
 */
function evictOldest(map, sizeMax) {
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
function resultAck(sessionId, index) {
  return { type: "result_ack", session_id: sessionId, utterance_index: index };
}
