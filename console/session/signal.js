/** Something happened: wakes up all who wait for it. It says nothing of what; look again. */
export class News {
  /** @type {Set<() => void>} */
  #waiting = new Set();

  /** Wake up all who wait now. */
  tell() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /**
   * Resolves with the next news, or after so many milliseconds.
   * @param {number} [timeoutMs]
   * @returns {Promise<void>}
   */
  next(timeoutMs) {
    return new Promise((resolve) => {
      this.#waiting.add(resolve);
      const giveUp = () => this.#waiting.delete(resolve) && resolve();
      if (timeoutMs !== undefined) setTimeout(giveUp, timeoutMs);
    });
  }
}
