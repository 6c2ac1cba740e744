/** A condition variable: wakes its waiters without a value. A waiter checks its own condition again. */
export class Signal {
  /** @type {Set<() => void>} */
  #waiters = new Set();

  /** Wake all current waiters. */
  notify() {
    for (const wake of this.#waiters) wake();
    this.#waiters.clear();
  }

  /**
   * Resolves at the next `notify`, or after the timeout.
   * @param {number} [timeoutMs]  without it the wait is unbounded
   * @returns {Promise<void>}
   */
  wait(timeoutMs) {
    return new Promise((resolve) => {
      this.#waiters.add(resolve);
      const onTimeout = () => this.#waiters.delete(resolve) && resolve();
      if (timeoutMs !== undefined) setTimeout(onTimeout, timeoutMs);
    });
  }
}
