/**
 * Voice activity detection: passes the speech of a continuous source, such as a microphone, and drops silence.
 *
 *     await session.stream(speechOf(microphone()));
 *
 * For PCM16, mono. `SpeechGate` is pure: its output depends on the samples only, not on their timing or chunk sizes.
 * linguamesh/speech_gate.py is its twin in Python, sample for sample.
 *
 * The level of each 20 ms frame is compared with a noise floor that falls at once and rises slowly. The gate opens
 * after three consecutive loud frames, so that a click does not open it. It then passes all audio, from the pre-roll
 * before those frames on, until silence lasts for `pauseMs`. Of that silence only the beginning (the hangover) is
 * passed. The rest is buffered: if speech continues, it is passed first, in the same step; if the utterance ends, it is
 * dropped, except for the next pre-roll. So speech is never delayed, and long silence is not sent.
 */

import { LinguaError } from "../session/errors.js";

const FRAME_MS = 20;
/** Consecutive loud frames that open the gate. A click as long as one frame may span two. */
const LOUD_FRAMES = 3;
/** Audio before the loud frames that is passed with them, because words begin softly. */
const PRE_ROLL_FRAMES = 15;
/** Silence after speech that is passed at once, because words end softly. */
const HANGOVER_FRAMES = 15;
/** The silence that ends an utterance, and its upper bound, because it is buffered. */
const PAUSE_MS = 700;
const PAUSE_MS_MAX = 10_000;
/** Root mean square of samples: a frame below this level never counts as the start of speech. */
const LEVEL_MIN = 150;
const LEVEL_MAX = 32_767;
const SAMPLE_RATE = 16_000;
const SAMPLE_RATE_MIN = 1_000;
const SAMPLE_RATE_MAX = 192_000;
/** Hysteresis, as multiples of the noise floor: speech starts at the first and continues above the second. */
const START_RATIO = 3;
const STOP_RATIO = 2;
/** Rise of the noise floor per frame: 3 dB per second. Speech dips often enough that this does not close the gate. */
const RISE = 1.007;

/**
 * @typedef {object} SpeechOptions
 * @property {number} [sampleRate]  in Hz
 * @property {number} [pauseMs]  the silence that ends an utterance
 * @property {number} [levelMin]  the lowest level, as the root mean square of a frame, that starts an utterance
 */

/** Passes speech, and null at the end of each utterance. Buffers at most `pauseMs` of audio. */
export class SpeechGate {
  #pauseFrames;
  #hangoverFrames;
  #floorMin;
  #floor;
  #isOpen = false;
  /** Consecutive, while the gate is closed. */
  #loudFrames = 0;
  /** Consecutive, while the gate is open. */
  #silentFrames = 0;
  /** The frame that is being filled. */
  #frame;
  #frameFilled = 0;
  /** Audio neither passed nor dropped; no part spans two frames. @type {Int16Array[]} */
  #buffer = [];
  #bufferedSamples = 0;

  /** @param {SpeechOptions} [options] */
  constructor({ sampleRate = SAMPLE_RATE, pauseMs = PAUSE_MS, levelMin = LEVEL_MIN } = {}) {
    checkRange("sampleRate", sampleRate, SAMPLE_RATE_MIN, SAMPLE_RATE_MAX);
    checkRange("pauseMs", pauseMs, FRAME_MS, PAUSE_MS_MAX);
    checkRange("levelMin", levelMin, 1, LEVEL_MAX);
    this.#frame = new Int16Array(Math.floor((sampleRate * FRAME_MS) / 1_000));
    this.#pauseFrames = Math.ceil(pauseMs / FRAME_MS);
    this.#hangoverFrames = Math.min(HANGOVER_FRAMES, this.#pauseFrames);
    this.#floorMin = this.#floor = levelMin / START_RATIO;
  }

  /**
   * Process more audio; returns the passed parts, with null at the end of each utterance.
   * @param {Int16Array} samples
   * @returns {(Int16Array | null)[]}
   */
  push(samples) {
    if (!(samples instanceof Int16Array)) throw new LinguaError("INVALID_AUDIO", "this is not an Int16Array of PCM16");
    const passed = [];
    for (let offset = 0; offset < samples.length; ) {
      // A copy, because the caller may reuse its buffer.
      const part = samples.slice(offset, offset + this.#frame.length - this.#frameFilled);
      offset += part.length;
      this.#frame.set(part, this.#frameFilled);
      this.#frameFilled += part.length;
      this.#buffer.push(part);
      this.#bufferedSamples += part.length;
      if (this.#frameFilled === this.#frame.length) {
        passed.push(...this.#onFrame(rms(this.#frame)));
        this.#frameFilled = 0;
      }
    }
    // An incomplete frame is passed too: within the hangover its level does not matter.
    const isPassing = this.#isOpen && this.#silentFrames < this.#hangoverFrames;
    if (isPassing && this.#bufferedSamples > 0) passed.push(this.#drain());
    return passed;
  }

  /** @param {number} level */
  #onFrame(level) {
    const floor = this.#floor;
    this.#floor = Math.max(this.#floorMin, Math.min(level, floor * RISE));
    if (this.#isOpen) return this.#onUtteranceFrame(level >= floor * STOP_RATIO);
    this.#loudFrames = level >= floor * START_RATIO ? this.#loudFrames + 1 : 0;
    if (this.#loudFrames === LOUD_FRAMES) {
      this.#isOpen = true;
      this.#silentFrames = 0;
    } else {
      this.#trim(PRE_ROLL_FRAMES + this.#loudFrames);
    }
    return [];
  }

  /**
   * A frame while the gate is open.
   * @param {boolean} isSpeech
   */
  #onUtteranceFrame(isSpeech) {
    const passed = [];
    this.#silentFrames = isSpeech ? 0 : this.#silentFrames + 1;
    if (this.#silentFrames === this.#hangoverFrames) passed.push(this.#drain());
    if (this.#silentFrames === this.#pauseFrames) {
      passed.push(null);
      this.#isOpen = false;
      this.#loudFrames = 0;
      this.#trim(PRE_ROLL_FRAMES); // pre-roll of the next utterance
    }
    return passed;
  }

  #drain() {
    const audio = new Int16Array(this.#bufferedSamples);
    let offset = 0;
    for (const part of this.#buffer) {
      audio.set(part, offset);
      offset += part.length;
    }
    this.#buffer = [];
    this.#bufferedSamples = 0;
    return audio;
  }

  /** @param {number} frames  that stay in the buffer */
  #trim(frames) {
    while (this.#bufferedSamples > frames * this.#frame.length) {
      this.#bufferedSamples -= /** @type {Int16Array} */ (this.#buffer.shift()).length;
    }
  }
}

/**
 * The speech of an async iterable, such as `microphone()`, with null at the end of each utterance.
 * @param {AsyncIterable<Int16Array> & {dropped?: number}} source  chunks of any length
 * @param {SpeechOptions} [options]
 */
export function speechOf(source, options) {
  return new Speech(source, options);
}

/** An async iterable of speech. For a chunk without speech it yields an empty one, so that its reader can stop in time
 * when the session is closed. */
export class Speech {
  /** Utterances that have started. */
  utterances = 0;
  #source;
  #gate;

  /**
   * @param {AsyncIterable<Int16Array> & {dropped?: number}} source
   * @param {SpeechOptions} [options]
   */
  constructor(source, options) {
    this.#source = source;
    this.#gate = new SpeechGate(options);
  }

  /** Chunks that the source has dropped because its queue was full. */
  get dropped() {
    return this.#source.dropped ?? 0;
  }

  /** @returns {AsyncGenerator<Int16Array | null, void, void>} */
  async *[Symbol.asyncIterator]() {
    let isSpeaking = false;
    for await (const samples of this.#source) {
      const passed = this.#gate.push(samples);
      if (passed.length === 0) yield new Int16Array();
      for (const piece of passed) {
        if (piece && !isSpeaking) this.utterances += 1;
        isSpeaking = piece !== null;
        yield piece;
      }
    }
  }
}

/** @param {Int16Array} frame */
function rms(frame) {
  let energy = 0;
  for (const sample of frame) energy += sample * sample;
  return Math.sqrt(energy / frame.length);
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function checkRange(name, value, least, most) {
  if (!(value >= least && value <= most)) throw new RangeError(`${name} is ${value}; it is from ${least} to ${most}`);
}
