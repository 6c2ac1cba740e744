/**
 * The page: one button that records, and the list of results.
 */

import { LinguaError, Session, microphone, speechOf } from "../lingua-session.js";

/** Results shown; older ones go. */
const SHOWN_MAX = 200;
const RECORDING = "Recording. Speak; when you pause, what you said is translated.";
const WAITING = "Recorded; waiting for the result.";
const STATES = {
  new: "Not connected.",
  opening: "Connecting …",
  open: "Connected.",
  reconnecting: "The connection is lost; connecting again …",
  closed: "Not connected.",
};
/** Why an utterance has no result, where the mesh gives a word for it. */
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
/** Results that are to come, of what was recorded. Less than none: some came while the recording goes on. */
let waiting = 0;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (recording) recording.stop();
  else void record();
});

form.addEventListener("change", () => {
  // Another edge or another language is another session.
  if (session && !recording) void session.close();
});

async function record() {
  recording = microphone();
  showRecording(true);
  try {
    const open = await opened();
    await recording.start();
    show(RECORDING);
    waiting = Math.max(waiting, 0);
    const speech = speechOf(recording);
    await open.stream(speech);
    waiting += speech.utterances;
    if (speech.utterances === 0) show("Nothing was heard. Speak louder, or closer to the microphone.");
    else show(waiting > 0 ? WAITING : "Ready.");
  } catch (error) {
    showError(error);
  } finally {
    recording.stop();
    recording = null;
    showRecording(false);
  }
}

/** @returns {Promise<Session>} */
async function opened() {
  if (session && session.state !== "closed") return session;
  const urls = field("urls").value.trim().split(/\s+/);
  const mine = new Session(urls, { src: field("src").value, tgt: field("tgt").value });
  session = mine;
  waiting = 0;
  mine.addEventListener("state", (event) => {
    const { state, error } = /** @type {CustomEvent} */ (event).detail;
    if (mine !== session) return;
    if (error) showError(error);
    else show(state === "open" && recording ? RECORDING : STATES[/** @type {keyof STATES} */ (state)]);
  });
  mine.addEventListener("lost", () => show("Something that was said may be lost. Say it again if no result comes."));
  await mine.open();
  void showResults(mine);
  return mine;
}

/** @param {Session} of */
async function showResults(of) {
  try {
    for await (const result of of.results()) {
      list.append(item(result));
      while (list.children.length > SHOWN_MAX) list.firstElementChild?.remove();
      if (field("aloud").checked) of.play(result).catch(showError);
      if (of === session) waiting -= 1;
      if (!recording) show(waiting > 0 ? WAITING : "Ready.");
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
  const made = document.createElement("p");
  made.className = name;
  made.textContent = text;
  return made;
}

/**
 * @param {string} what
 * @param {string} hint
 */
function sentences(what, hint) {
  return `${what.charAt(0).toUpperCase()}${what.slice(1)}. ${hint}`.trim();
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
