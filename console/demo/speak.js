/**
 * The demo page: a record button and the list of results.
 */

import { LinguaError, Session, microphone, speechOf } from "../lingua-session.js";

/** Bound on displayed results; older ones are removed. */
const SHOWN_MAX = 200;
const RECORDING = "Recording. Speak; when you pause, what you said is translated.";
const PENDING = "Recorded; waiting for the result.";
const STATES = {
  new: "Not connected.",
  opening: "Connecting …",
  open: "Connected.",
  reconnecting: "The connection is lost; connecting again …",
  closed: "Not connected.",
};
/** Texts for the reasons of `missing_result`. */
const REASONS = new Map([
  ["silence_detected", "nothing was heard"],
  ["gap_timeout", "it took too long"],
  ["pending_overflow_evict", "too much was said at once"],
  ["job_failed", "it could not be translated"],
  ["lost", "it was lost with the connection"],
]);

const form = /** @type {HTMLFormElement} */ (document.querySelector("#settings"));
const button = /** @type {HTMLButtonElement} */ (document.querySelector("#record"));
const status = /** @type {HTMLElement} */ (document.querySelector("#status"));
const list = /** @type {HTMLElement} */ (document.querySelector("#results"));
const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));

for (const [name, value] of new URLSearchParams(location.search)) {
  if (["urls", "src", "tgt"].includes(name)) field(name).value = value;
}

/** @type {Session | null} */
let session = null;
/** @type {import("../audio/microphone.js").Microphone | null} */
let recording = null;
/** Recorded utterances without a result. Negative while recording: results came before the count of utterances. */
let pending = 0;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (recording) recording.stop();
  else void record();
});

form.addEventListener("change", () => {
  // A session has one language pair and one list of edges.
  if (session && !recording) void session.close();
});

async function record() {
  recording = microphone();
  showRecording(true);
  try {
    const current = await openSession();
    await recording.start();
    show(RECORDING);
    pending = Math.max(pending, 0);
    const speech = speechOf(recording);
    await current.stream(speech);
    pending += speech.utterances;
    if (speech.utterances === 0) show("Nothing was heard. Speak louder, or closer to the microphone.");
    else show(pending > 0 ? PENDING : "Ready.");
  } catch (error) {
    showError(error);
  } finally {
    recording.stop();
    recording = null;
    showRecording(false);
  }
}

/** @returns {Promise<Session>} */
async function openSession() {
  if (session && session.state !== "closed") return session;
  const urls = field("urls").value.trim().split(/\s+/);
  const opening = new Session(urls, { src: field("src").value, tgt: field("tgt").value });
  session = opening;
  pending = 0;
  opening.addEventListener("state", (event) => {
    const { state, error } = /** @type {CustomEvent} */ (event).detail;
    if (opening !== session) return;
    if (error) showError(error);
    else show(state === "open" && recording ? RECORDING : STATES[/** @type {keyof STATES} */ (state)]);
  });
  opening.addEventListener("lost", () => show("Something that was said may be lost. Say it again if no result comes."));
  await opening.open();
  void showResults(opening);
  return opening;
}

/** @param {Session} from */
async function showResults(from) {
  try {
    for await (const result of from.results()) {
      list.append(item(result));
      while (list.children.length > SHOWN_MAX) list.firstElementChild?.remove();
      if (field("aloud").checked) from.play(result).catch(showError);
      if (from === session) pending -= 1;
      if (!recording) show(pending > 0 ? PENDING : "Ready.");
    }
  } catch (error) {
    showError(error);
  }
}

/** @param {import("../session/results.js").Result} result */
function item(result) {
  const entry = document.createElement("li");
  entry.dataset.index = String(result.index);
  if (result.error) {
    const { message, hint } = result.error;
    entry.append(paragraph("failed", sentences(`No result: ${REASONS.get(message) ?? message}`, hint)));
  } else {
    const translated = paragraph("translated", result.textTranslated);
    translated.lang = field("tgt").value;
    entry.append(paragraph("heard", result.textAsr), translated);
  }
  return entry;
}

/**
 * @param {string} name
 * @param {string} text
 */
function paragraph(name, text) {
  const element = document.createElement("p");
  element.className = name;
  element.textContent = text;
  return element;
}

/**
 * @param {string} text
 * @param {string} hint
 */
function sentences(text, hint) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}. ${hint}`.trim();
}

/** @param {boolean} on */
function showRecording(on) {
  button.textContent = on ? "Stop" : "Record";
  button.classList.toggle("recording", on);
}

/** @param {string} text */
function show(text) {
  status.textContent = text;
  status.className = "";
}

/** @param {unknown} error */
function showError(error) {
  const known = error instanceof LinguaError ? error : new LinguaError("INTERNAL_ERROR", String(error));
  show(sentences(known.message, known.hint));
  status.className = "failed";
}
