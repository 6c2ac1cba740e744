/**
 * Streaming resampler: a windowed sinc, evaluated at the position of each output sample. Blocks join without
 * discontinuities. Used where the browser does not resample a microphone itself.
 */

/** Zero crossings of the sinc on each side; more make the filter sharper and slower. */
const CROSSINGS = 16;
/** Table entries between two zero crossings; between entries it is interpolated linearly. */
const TABLE_STEP = 256;

/** One half of the symmetric kernel, under a Hann window. */
const TABLE = Float32Array.from({ length: CROSSINGS * TABLE_STEP + 2 }, (_, i) => {
  const x = i / TABLE_STEP;
  if (x >= CROSSINGS) return 0;
  const window = 0.5 + 0.5 * Math.cos((Math.PI * x) / CROSSINGS);
  return x === 0 ? 1 : (Math.sin(Math.PI * x) / (Math.PI * x)) * window;
});

/** @param {number} x  distance in zero crossings, not negative */
function kernel(x) {
  const position = x * TABLE_STEP;
  const whole = Math.floor(position);
  if (whole >= TABLE.length - 1) return 0;
  return TABLE[whole] + (TABLE[whole + 1] - TABLE[whole]) * (position - whole);
}

/** Converts one stream from one sample rate to another. */
export class Resampler {
  #step;
  #scale;
  #reach;
  /** Input that later outputs still need. It starts as silence. */
  #history;
  /** The position of the next output sample, in samples of #history. */
  #position;

  /**
   * @param {number} fromRate
   * @param {number} toRate
   */
  constructor(fromRate, toRate) {
    this.#step = fromRate / toRate;
    // Downsampling stretches the kernel, so that it also removes frequencies above the new Nyquist limit.
    this.#scale = Math.max(1, this.#step);
    this.#reach = Math.ceil(CROSSINGS * this.#scale);
    this.#history = new Float32Array(this.#reach);
    this.#position = this.#reach;
  }

  /**
   * The output samples that this block completes; the last ones need the next block.
   * @param {Float32Array} block
   */
  push(block) {
    const input = new Float32Array(this.#history.length + block.length);
    input.set(this.#history);
    input.set(block, this.#history.length);
    const output = [];
    while (this.#position + this.#reach < input.length) {
      output.push(this.#at(input, this.#position));
      this.#position += this.#step;
    }
    const done = Math.max(Math.floor(this.#position) - this.#reach, 0);
    this.#history = input.slice(done);
    this.#position -= done;
    return Float32Array.from(output);
  }

  /**
   * @param {Float32Array} input
   * @param {number} position
   */
  #at(input, position) {
    let sum = 0;
    const last = Math.floor(position + this.#reach);
    for (let i = Math.max(Math.ceil(position - this.#reach), 0); i <= last; i += 1) {
      sum += input[i] * kernel(Math.abs(position - i) / this.#scale);
    }
    return sum / this.#scale;
  }
}
