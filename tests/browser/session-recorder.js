/** Opens a session in the page and records its results and events in a form that the test can read. */

import { Session } from "/lingua-session.js";

export const recorded = { results: [], heard: [], states: [], lost: [], members: [], events: [], over: null };
/** The Result objects themselves. */
export const resultObjects = [];

/** Open the session; also `window.session`. */
export async function open(urls, options) {
  const session = new Session(urls, { src: "en", tgt: "es", ...options });
  window.session = session;
  window.recorded = recorded;
  const record = (name, list, form) => session.addEventListener(name, ({ detail }) => list.push(form(detail)));
  record("state", recorded.states, ({ state }) => state);
  record("lost", recorded.lost, ({ reason }) => reason);
  record("heard", recorded.heard, plain);
  record("members", recorded.members, ({ members }) => members.map((member) => member.session_id));
  record("event", recorded.events, (message) => message);
  await session.open();
  void read(session);
  return session.sessionId;
}

async function read(session) {
  try {
    for await (const result of session.results()) {
      resultObjects.push(result);
      recorded.results.push(plain(result));
    }
    recorded.over = { code: "", message: "" };
  } catch (error) {
    recorded.over = plainError(error);
  }
}

export function plain(result) {
  const { index, sessionId, textTranslated, error } = result;
  return { index, sessionId, text: textTranslated, error: error && plainError(error) };
}

export function plainError({ code, message, hint }) {
  return { code, message, hint };
}

/** PCM16 of that length; all samples have the same value. */
export function sound(ms, sample = 1) {
  return new Int16Array(ms * 16).fill(sample);
}

/** The value of the action, or its error. */
export async function outcome(action) {
  try {
    return { value: await action(), error: null };
  } catch (error) {
    return { value: null, error: plainError(error) };
  }
}
