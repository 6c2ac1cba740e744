/**
 * The audio worklet of a microphone: converts its input to chunks of PCM16, mono, and posts them to the page. Any
 * message from the page ends it: the partial chunk is posted, then null.
 */

import { Resampler } from "./resampler.js";

/** @typedef {{rate: number, chunkSamples: number}} ProcessorOptions */

class MicrophoneProcessor extends AudioWorkletProcessor {
  #resampler;
  #chunk;
  #filled = 0;
  #ended = false;

  /** @param {{processorOptions: ProcessorOptions}} options */
  constructor({ processorOptions }) {
    super();
    const { rate, chunkSamples } = processorOptions;
    this.#resampler = rate === sampleRate ? null : new Resampler(sampleRate, rate);
    this.#chunk = new Int16Array(chunkSamples);
    this.port.onmessage = () => this.#end();
  }

  /** @param {Float32Array[][]} inputs */
  process([channels]) {
    if (this.#ended) return false;
    if (channels.length > 0) this.#add(mixDown(channels));
    return true;
  }

  /** @param {Float32Array} block */
  #add(block) {
    const samples = this.#resampler ? this.#resampler.push(block) : block;
    for (const sample of samples) {
      this.#chunk[this.#filled++] = Math.round(Math.min(Math.max(sample, -1), 1) * 32_767);
      if (this.#filled === this.#chunk.length) this.#post();
    }
  }

  #post() {
    const samples = this.#chunk.slice(0, this.#filled);
    this.#filled = 0;
    this.port.postMessage(samples, [samples.buffer]);
  }

  #end() {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#filled > 0) this.#post();
    this.port.postMessage(null);
  }
}

/** @param {Float32Array[]} channels */
function mixDown(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
}

registerProcessor("lingua-microphone", MicrophoneProcessor);
