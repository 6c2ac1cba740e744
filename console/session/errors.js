/**
 * Errors of a session. Branch on `code`, show `hint`, never parse the text.
 */

/** Hints for errors that the mesh sends without one, and for this module's own codes: code -> the user's next step. */
const HINTS = Object.freeze({
  UNREACHABLE: "Check the address, and that the mesh is running there.",
  MISSING_RESULT: "Say it again.",
  MICROPHONE: "Allow the page to use the microphone, and check that one is there.",
  WS_DISCONNECTED: "Check the network, and try again.",
  SESSION_CLOSED: "Open a new session.",
  SESSION_SUPERSEDED: "This session goes on in another window or on another device.",
  SLOW_DOWN: "The mesh is busy; send less for a moment.",
  INVALID_AUDIO: "Send PCM16: an Int16Array, or bytes of an even number.",
  UNSUPPORTED_FEATURE: "The mesh cannot take this audio; use another edge or a newer one.",
  NOT_IN_ROOM: "Join the room first.",
});

/** An error with a code of docs/protocol.md, or one of this module's own (docs/browser.md). */
export class LinguaError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{hint?: string, details?: Record<string, unknown>}} [more]
   */
  constructor(code, message, more = {}) {
    super(message || code);
    this.name = "LinguaError";
    this.code = code;
    this.details = more.details ?? {};
    const given = more.hint ?? this.details.hint;
    this.hint = typeof given === "string" ? given : (HINTS[/** @type {keyof typeof HINTS} */ (code)] ?? "");
  }
}

/**
 * The error of an `error` or `room_error` message.
 * @param {{code: string, message?: string, details?: unknown}} message
 */
export function errorFrom(message) {
  const details = isObject(message.details) ? message.details : {};
  return new LinguaError(String(message.code), String(message.message ?? ""), { details });
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
