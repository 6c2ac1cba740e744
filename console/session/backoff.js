/** Exponential backoff with full jitter for reconnect attempts. */

/** Upper bound of the exponent: 2^failures stays a finite number. */
const EXPONENT_MAX = 32;

/** Delays of consecutive attempts: uniform between 0 and base * 2^failures, at most the cap. */
export class Backoff {
  #baseMs;
  #capMs;
  #failures = 0;

  /**
   * @param {number} baseMs
   * @param {number} capMs
   */
  constructor(baseMs, capMs) {
    this.#baseMs = baseMs;
    this.#capMs = capMs;
  }

  /** The delay before the next attempt, in ms. Each call counts as one more failure. */
  nextDelayMs() {
    const delayMsMax = Math.min(this.#capMs, this.#baseMs * 2 ** Math.min(this.#failures, EXPONENT_MAX));
    this.#failures += 1;
    return Math.random() * delayMsMax;
  }

  /** A connection was stable: the next delay starts from the base again. */
  reset() {
    this.#failures = 0;
  }
}
