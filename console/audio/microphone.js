/**
 * The microphone as a stream of PCM16 chunks: `for await (const samples of microphone()) ...`.
 */

import { LinguaError } from "../session/errors.js";

const SAMPLE_RATE = 16_000;
const CHUNK_MS = 100;
/** Chunks that nobody has taken yet: half a minute. Beyond, new ones are dropped and counted. */
const CHUNKS_WAITING_MAX = 300;
/** After this the rest of the sound is not waited for. */
const STOP_MS_MAX = 1_000;
const WORKLET = new URL("./microphone-worklet.js", import.meta.url);

/**
 * @typedef {object} MicrophoneOptions
 * @property {number} [sampleRate]
 * @property {MediaTrackConstraints} [constraints]  more about the microphone, such as deviceId
 */

/**
 * The microphone, not yet listening: that begins with the first chunk that is asked for.
 * @param {MicrophoneOptions} [options]
 */
export function microphone(options) {
  return new Microphone(options);
}

/** One recording. It ends with `stop()`, with its device, or when the loop over it is left. */
export class Microphone {
  /** Chunks that were dropped because nobody took them. */
  dropped = 0;
  #rate;
  #constraints;
  /** @type {Int16Array[]} */
  #waiting = [];
  #ended = false;
  #wake = () => {};
  /** @type {Promise<void> | null} */
  #started = null;
  /** @type {MediaStream | null} */
  #stream = null;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {AudioWorkletNode | null} */
  #worklet = null;

  /** @param {MicrophoneOptions} [options] */
  constructor({ sampleRate = SAMPLE_RATE, constraints = {} } = {}) {
    this.#rate = sampleRate;
    this.#constraints = constraints;
  }

  /** Listen; `MICROPHONE` if there is none, or the page may not use it. The first chunk asked for does this too. */
  start() {
    this.#started ??= this.#start().catch((error) => {
      if (this.#ended) return; // stopped while it started
      this.#end();
      throw new LinguaError("MICROPHONE", `cannot use the microphone: ${error.message}`);
    });
    return this.#started;
  }

  /** Stop listening. What was heard until now is still to be had; then the stream ends. */
  stop() {
    if (this.#ended) return;
    if (this.#worklet) {
      this.#worklet.port.postMessage("end");
      setTimeout(() => this.#end(), STOP_MS_MAX); // a suspended context answers nothing
    } else {
      this.#end();
    }
  }

  /** @returns {AsyncGenerator<Int16Array, void, void>} */
  async *[Symbol.asyncIterator]() {
    try {
      await this.start();
      while (true) {
        while (this.#waiting.length > 0) yield /** @type {Int16Array} */ (this.#waiting.shift());
        if (this.#ended) return;
        await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
      }
    } finally {
      this.#end();
    }
  }

  async #start() {
    this.#stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, ...this.#constraints },
    });
    if (this.#ended) return this.#release();
    for (const track of this.#stream.getAudioTracks()) track.addEventListener("ended", () => this.stop());
    const source = this.#source(this.#stream);
    const context = /** @type {AudioContext} */ (source.context);
    await context.resume();
    await context.audioWorklet.addModule(WORKLET);
    if (this.#ended) return;
    this.#worklet = new AudioWorkletNode(context, "lingua-microphone", {
      numberOfOutputs: 0,
      processorOptions: { rate: this.#rate, chunkSamples: Math.round((this.#rate * CHUNK_MS) / 1_000) },
    });
    this.#worklet.port.onmessage = ({ data }) => this.#onChunk(data);
    source.connect(this.#worklet);
  }

  /**
   * Some browsers resample a microphone when the context asks for another rate; in others the worklet must.
   * @param {MediaStream} stream
   */
  #source(stream) {
    try {
      this.#context = new AudioContext({ sampleRate: this.#rate });
      return this.#context.createMediaStreamSource(stream);
    } catch {
      void this.#context?.close();
      this.#context = new AudioContext();
      return this.#context.createMediaStreamSource(stream);
    }
  }

  /** @param {Int16Array | null} samples  null: it was the last */
  #onChunk(samples) {
    if (samples === null) return this.#end();
    if (this.#waiting.length < CHUNKS_WAITING_MAX) this.#waiting.push(samples);
    else this.dropped += 1;
    this.#wake();
  }

  #end() {
    if (this.#ended) return;
    this.#ended = true;
    this.#release();
    this.#wake();
  }

  #release() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#context && this.#context.state !== "closed") void this.#context.close();
  }
}
