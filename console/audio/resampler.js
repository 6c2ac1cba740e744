/**
 * Changes the sample rate of a stream, block by block, without seams: a windowed sinc, evaluated where each new sample
 * lies. Used where the browser does not resample a microphone itself.
 */

/** Zero crossings of the sinc on each side; more are sharper and cost more. */
const CROSSINGS = 16;
/** Points of the table between two zero crossings; in between it is interpolated. */
const TABLE_STEP = 256;

/** One half of the symmetric kernel, under a Hann window. */
const TABLE = Float32Array.from({ length: CROSSINGS * TABLE_STEP + 2 }, (_, place) => {
  const x = place / TABLE_STEP;
  if (x >= CROSSINGS) return 0;
  const window = 0.5 + 0.5 * Math.cos((Math.PI * x) / CROSSINGS);
  return x === 0 ? 1 : (Math.sin(Math.PI * x) / (Math.PI * x)) * window;
});

/** @param {number} x  distance in zero crossings, not negative */
function kernel(x) {
  const place = x * TABLE_STEP;
  const whole = Math.floor(place);
  if (whole >= TABLE.length - 1) return 0;
  return TABLE[whole] + (TABLE[whole + 1] - TABLE[whole]) * (place - whole);
}

/** One stream at one rate becomes one at another. */
export class Resampler {
  #step;
  #scale;
  #reach;
  /** The input that later samples still need. Before the first sample there is silence. */
  #history;
  /** Where the next new sample lies, counted in samples of #history. */
  #position;

  /**
   * @param {number} fromRate
   * @param {number} toRate
   */
  constructor(fromRate, toRate) {
    this.#step = fromRate / toRate;
    // Going down, the kernel is stretched: it must also remove what the lower rate cannot hold.
    this.#scale = Math.max(1, this.#step);
    this.#reach = Math.ceil(CROSSINGS * this.#scale);
    this.#history = new Float32Array(this.#reach);
    this.#position = this.#reach;
  }

  /**
   * The samples at the new rate that this block makes possible; the last ones wait for the next block.
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
    for (let place = Math.max(Math.ceil(position - this.#reach), 0); place <= last; place += 1) {
      sum += input[place] * kernel(Math.abs(position - place) / this.#scale);
    }
    return sum / this.#scale;
  }
}
