/**
 * The microphone as a stream of PCM16 chunks: `for await (const samples of microphone()) ...`.
 */

import { LinguaError } from "../session/errors.js";

const SAMPLE_RATE = 16_000;
const CHUNK_MS = 100;
/** Bound on chunks that wait to be read: half a minute. Beyond, new chunks are dropped and counted. */
const QUEUED_CHUNKS_MAX = 300;
/** After `stop`: timeout of the last chunk. */
const STOP_TIMEOUT_MS = 1_000;
const WORKLET = new URL("./microphone-worklet.js", import.meta.url);

/**
 * @typedef {object} MicrophoneOptions
 * @property {number} [sampleRate]
 * @property {MediaTrackConstraints} [constraints]  more constraints of the track, such as deviceId
 */

/**
 * A microphone that starts to record at `start()` or when its first chunk is read.
 * @param {MicrophoneOptions} [options]
 */
export function microphone(options) {
  return new Microphone(options);
}

/** One recording. It ends at `stop()`, with its device, or when the loop over it is left. */
export class Microphone {
  /** Chunks that were dropped because the queue was full. */
  dropped = 0;
  #rate;
  #constraints;
  /** @type {Int16Array[]} */
  #queue = [];
  #ended = false;
  /** Wakes the reader. */
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

  /** Start to record; idempotent. Rejects with `MICROPHONE` if there is none, or the page has no permission. */
  start() {
    this.#started ??= this.#start().catch((error) => {
      if (this.#ended) return; // stopped during the start
      this.#end();
      throw new LinguaError("MICROPHONE", `cannot use the microphone: ${error.message}`);
    });
    return this.#started;
  }

  /** Stop recording. Chunks recorded so far can still be read; then the stream ends. */
  stop() {
    if (this.#ended) return;
    if (this.#worklet) {
      this.#worklet.port.postMessage("end");
      setTimeout(() => this.#end(), STOP_TIMEOUT_MS); // a suspended context does not run the worklet
    } else {
      this.#end();
    }
  }

  /** @returns {AsyncGenerator<Int16Array, void, void>} */
  async *[Symbol.asyncIterator]() {
    try {
      await this.start();
      while (true) {
        while (this.#queue.length > 0) yield /** @type {Int16Array} */ (this.#queue.shift());
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
   * Chromium resamples a microphone to the rate of the context. Where that is not supported, the worklet resamples.
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

  /** @param {Int16Array | null} samples  null after the last chunk */
  #onChunk(samples) {
    if (samples === null) return this.#end();
    if (this.#queue.length < QUEUED_CHUNKS_MAX) this.#queue.push(samples);
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
