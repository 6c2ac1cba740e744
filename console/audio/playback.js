/**
 * Plays the speech of results with WebAudio, one after the other.
 */

import { LinguaError } from "../session/errors.js";
import { fromBase64 } from "../session/frames.js";

/** Of speech that says nothing of its rate. */
const SAMPLE_RATE = 16_000;
/** Results that wait until the one before them was played. */
const WAITING_MAX = 32;

/** @typedef {import("../session/results.js").Result} Result */

/** A queue of speech. */
export class Playback {
  /** @type {AudioContext | null} */
  #context = null;
  #waiting = 0;
  #last = Promise.resolve();

  /**
   * Play after what is already to be played; resolves when it is over. A result without speech is over at once.
   * @param {Result} result
   * @param {{onStart: () => void, onEnd: () => void}} tell
   * @param {number} [sampleRate]  of pcm16
   */
  play(result, tell, sampleRate = SAMPLE_RATE) {
    if (!result.ttsAudio) return Promise.resolve();
    if (this.#waiting >= WAITING_MAX) {
      return Promise.reject(new LinguaError("SLOW_DOWN", `${WAITING_MAX} results wait to be played`));
    }
    this.#waiting += 1;
    const played = this.#last.then(() => this.#play(result, tell, sampleRate)).finally(() => (this.#waiting -= 1));
    this.#last = played.catch(() => undefined);
    return played;
  }

  /** Be silent, for good. */
  async close() {
    if (this.#context && this.#context.state !== "closed") await this.#context.close();
  }

  /**
   * @param {Result} result
   * @param {{onStart: () => void, onEnd: () => void}} tell
   * @param {number} sampleRate
   */
  async #play(result, tell, sampleRate) {
    this.#context ??= new AudioContext();
    const context = this.#context;
    if (context.state === "closed") return;
    const buffer = await speechOf(context, result, sampleRate);
    await context.resume();
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    const listening = new AbortController();
    const ended = new Promise((resolve) => {
      const closed = () => context.state === "closed" && resolve(undefined);
      source.addEventListener("ended", resolve);
      context.addEventListener("statechange", closed, { signal: listening.signal });
    });
    source.start();
    tell.onStart();
    await ended;
    listening.abort();
    tell.onEnd();
  }
}

/**
 * @param {BaseAudioContext} context
 * @param {Result} result
 * @param {number} sampleRate
 * @returns {Promise<AudioBuffer>}
 */
async function speechOf(context, result, sampleRate) {
  const bytes = fromBase64(result.ttsAudio);
  try {
    // Some nodes say pcm16 and send a file.
    if (result.ttsFormat !== "pcm16" || startsWith(bytes, "RIFF")) return await context.decodeAudioData(bytes.buffer);
  } catch (error) {
    throw new LinguaError("INVALID_AUDIO", `cannot play ${result.ttsFormat}: ${/** @type {Error} */ (error).message}`);
  }
  const view = new DataView(bytes.buffer);
  const length = bytes.length >> 1;
  const samples = Float32Array.from({ length }, (_, place) => view.getInt16(place * 2, true) / 32_768);
  const buffer = new AudioBuffer({ length: Math.max(samples.length, 1), sampleRate });
  buffer.copyToChannel(samples, 0);
  return buffer;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} text
 */
function startsWith(bytes, text) {
  return [...text].every((character, place) => bytes[place] === character.charCodeAt(0));
}
