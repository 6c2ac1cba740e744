/**
 * Finds the speech in sound that never ends, such as that of a microphone, which also sends silence.
 *
 *     await session.stream(speechOf(microphone()));
 *
 * For PCM16, mono. `SpeechGate` is pure: what it passes depends on the samples alone, not on when or in which pieces
 * they come. linguamesh/speech_gate.py is its twin in Python, sample for sample.
 *
 * The sound is measured in frames of 20 ms, against a noise floor that falls at once and rises slowly. The gate opens
 * at three loud frames in a row, so that a click does not open it. From a little before those, all sound is passed as
 * it is, until there was silence for `pauseMs`. Of that silence only the beginning is passed. The rest is held back
 * until speech goes on, and then passed before it, in the same step, or until the utterance has ended: so no word waits
 * for anything, and no dead sound is sent to be translated.
 */

import { LinguaError } from "../session/errors.js";

const FRAME_MS = 20;
/** So many loud frames in a row are speech. A click of one frame's length may lie in two. */
const LOUD_FRAMES = 3;
/** Sound before speech that is passed with it, because words begin softly. */
const PRE_ROLL_FRAMES = 15;
/** Sound after speech that is passed at once, because words end softly. */
const HANGOVER_FRAMES = 15;
/** So long a silence ends an utterance, and how long it may be at most: it is held in memory. */
const PAUSE_MS = 700;
const PAUSE_MS_MAX = 10_000;
/** Root mean square of samples: what is below this is never the beginning of speech. */
const LEVEL_MIN = 150;
const LEVEL_MAX = 32_767;
const SAMPLE_RATE = 16_000;
const SAMPLE_RATE_MIN = 1_000;
const SAMPLE_RATE_MAX = 192_000;
/** Times the noise floor: speech begins at the first, and goes on down to the second. */
const START_RATIO = 3;
const STOP_RATIO = 2;
/** Of the noise floor, in each frame: 3 dB in a second. Even loud speech dips more often than that would close the gate. */
const RISE = 1.007;

/**
 * @typedef {object} SpeechOptions
 * @property {number} [sampleRate]  of the sound, in Hz
 * @property {number} [pauseMs]  so long a silence ends an utterance
 * @property {number} [levelMin]  what is less loud, as the root mean square of samples in 20 ms, begins no utterance
 */

/** Passes speech, and null where an utterance ends. Holds at most `pauseMs` of sound. */
export class SpeechGate {
  #pauseFrames;
  #hangoverFrames;
  #floorMin;
  #floor;
  #isOpen = false;
  /** In a row, while it is closed. */
  #loudFrames = 0;
  /** In a row, while it is open. */
  #stillFrames = 0;
  /** What is being measured. */
  #frame;
  #frameFilled = 0;
  /** What was neither passed nor dropped; no part lies in two frames. @type {Int16Array[]} */
  #held = [];
  #heldSamples = 0;

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
   * More sound; what is passed now, and null for each end.
   * @param {Int16Array} samples
   * @returns {(Int16Array | null)[]}
   */
  push(samples) {
    if (!(samples instanceof Int16Array)) throw new LinguaError("INVALID_AUDIO", "this is not an Int16Array of PCM16");
    const passed = [];
    for (let at = 0; at < samples.length; ) {
      // A copy, because the caller may use its buffer again.
      const part = samples.slice(at, at + this.#frame.length - this.#frameFilled);
      at += part.length;
      this.#frame.set(part, this.#frameFilled);
      this.#frameFilled += part.length;
      this.#held.push(part);
      this.#heldSamples += part.length;
      if (this.#frameFilled === this.#frame.length) {
        passed.push(...this.#judge(levelOf(this.#frame)));
        this.#frameFilled = 0;
      }
    }
    // Of a frame that is not complete too: it is passed, however loud it will be.
    if (this.#isOpen && this.#stillFrames < this.#hangoverFrames && this.#heldSamples > 0) passed.push(this.#take());
    return passed;
  }

  /** @param {number} level */
  #judge(level) {
    const floor = this.#floor;
    this.#floor = Math.max(this.#floorMin, Math.min(level, floor * RISE));
    if (this.#isOpen) return this.#goOn(level >= floor * STOP_RATIO);
    this.#loudFrames = level >= floor * START_RATIO ? this.#loudFrames + 1 : 0;
    if (this.#loudFrames === LOUD_FRAMES) {
      this.#isOpen = true;
      this.#stillFrames = 0;
    } else {
      this.#dropAllBut(PRE_ROLL_FRAMES + this.#loudFrames);
    }
    return [];
  }

  /**
   * One more frame of an utterance.
   * @param {boolean} isSpeech
   */
  #goOn(isSpeech) {
    const passed = [];
    this.#stillFrames = isSpeech ? 0 : this.#stillFrames + 1;
    if (this.#stillFrames === this.#hangoverFrames) passed.push(this.#take());
    if (this.#stillFrames === this.#pauseFrames) {
      passed.push(null);
      this.#isOpen = false;
      this.#loudFrames = 0;
      this.#dropAllBut(PRE_ROLL_FRAMES); // the next word may begin at once
    }
    return passed;
  }

  #take() {
    const taken = new Int16Array(this.#heldSamples);
    let at = 0;
    for (const part of this.#held) {
      taken.set(part, at);
      at += part.length;
    }
    this.#held = [];
    this.#heldSamples = 0;
    return taken;
  }

  /** @param {number} frames */
  #dropAllBut(frames) {
    while (this.#heldSamples > frames * this.#frame.length) {
      this.#heldSamples -= /** @type {Int16Array} */ (this.#held.shift()).length;
    }
  }
}

/**
 * The speech in what an async iterable gives, such as `microphone()`, and null where an utterance ends.
 * @param {AsyncIterable<Int16Array> & {dropped?: number}} source  chunks of any length
 * @param {SpeechOptions} [options]
 */
export function speechOf(source, options) {
  return new Speech(source, options);
}

/** Speech as it comes. A chunk in which nothing is passed gives an empty one, so that whoever reads this can see in time
 * that there is nobody left to listen. */
export class Speech {
  /** Utterances that have begun. */
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

  /** Chunks that the source has dropped because nobody took them. */
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
function levelOf(frame) {
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
