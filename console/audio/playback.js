/**
 * Plays the speech of results with WebAudio, one after another.
 */

import { LinguaError } from "../session/errors.js";

/** Of pcm16, which has no header. */
const SAMPLE_RATE = 16_000;
/** Bound on results that wait to be played. */
const QUEUED_MAX = 32;

/** @typedef {import("../session/results.js").Result} Result */
/** @typedef {{onStart: () => void, onEnd: () => void}} Callbacks */

/** A queue of results. */
export class Playback {
  /** @type {AudioContext | null} */
  #context = null;
  #queued = 0;
  #last = Promise.resolve();

  /**
   * Play after all queued results; resolves at its end, at once for a result without speech. Rejects with `SLOW_DOWN`
   * if the queue is full.
   * @param {Result} result
   * @param {Callbacks} callbacks
   * @param {number} [sampleRate]  of pcm16
   */
  async play(result, callbacks, sampleRate = SAMPLE_RATE) {
    if (result.ttsAudio.length === 0) return;
    if (this.#queued >= QUEUED_MAX) throw new LinguaError("SLOW_DOWN", `${QUEUED_MAX} results wait to be played`);
    this.#queued += 1;
    const played = this.#last.then(() => this.#play(result, callbacks, sampleRate)).finally(() => (this.#queued -= 1));
    this.#last = played.catch(() => undefined);
    await played;
  }

  /** Stop playback for good: queued results are not played. */
  async close() {
    if (this.#context && this.#context.state !== "closed") await this.#context.close();
  }

  /**
   * @param {Result} result
   * @param {Callbacks} callbacks
   * @param {number} sampleRate
   */
  async #play(result, callbacks, sampleRate) {
    this.#context ??= new AudioContext();
    const context = this.#context;
    if (context.state === "closed") return;
    const buffer = await decodeSpeech(context, result, sampleRate);
    await context.resume();
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    const listeners = new AbortController();
    const ended = new Promise((resolve) => {
      const onStateChange = () => context.state === "closed" && resolve(undefined);
      source.addEventListener("ended", resolve);
      context.addEventListener("statechange", onStateChange, { signal: listeners.signal });
    });
    source.start();
    callbacks.onStart();
    await ended;
    listeners.abort();
    callbacks.onEnd();
  }
}

/**
 * @param {BaseAudioContext} context
 * @param {Result} result
 * @param {number} sampleRate
 * @returns {Promise<AudioBuffer>}
 */
async function decodeSpeech(context, result, sampleRate) {
  const bytes = result.ttsAudio;
  try {
    // Some nodes declare pcm16 and send a WAV file. A copy is decoded, because its buffer is detached.
    if (result.ttsFormat !== "pcm16" || startsWith(bytes, "RIFF")) {
      return await context.decodeAudioData(bytes.slice().buffer);
    }
  } catch (error) {
    throw new LinguaError("INVALID_AUDIO", `cannot play ${result.ttsFormat}: ${/** @type {Error} */ (error).message}`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = bytes.length >> 1;
  const samples = Float32Array.from({ length }, (_, i) => view.getInt16(i * 2, true) / 32_768);
  const buffer = new AudioBuffer({ length: Math.max(samples.length, 1), sampleRate });
  buffer.copyToChannel(samples, 0);
  return buffer;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} text
 */
function startsWith(bytes, text) {
  return [...text].every((character, i) => bytes[i] === character.charCodeAt(0));
}
