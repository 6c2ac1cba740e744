/**
 * The handshake: builds `session_init` and validates the formats that `session_init_ack` negotiates. Pure.
 */

import { LinguaError } from "./errors.js";

export const SAMPLE_RATE = 16_000;

const CLIENT_VERSION = "lingua-web-0.1.0";
const PLATFORM = "web";
const CODEC = "pcm16";

/**
 * `session_init` of a new or a resumed session.
 * @param {{src?: string, tgt: string, init?: Record<string, unknown>}} options
 * @param {string} resumeToken  "" for a new session
 * @param {{lastIndex: number, lastSeq: number}} position  the last utterance that ended, and its last chunk
 */
export function sessionInit({ src, tgt, init }, resumeToken, { lastIndex, lastSeq }) {
  const position = { last_index: lastIndex, last_seq: lastSeq };
  // A pairing code is valid once; a resumed session keeps its node.
  const resume = { resume_token: resumeToken, ...position, pairing_code: undefined };
  return {
    type: "session_init",
    client_version: CLIENT_VERSION,
    platform: PLATFORM,
    src_lang: src,
    tgt_lang: tgt,
    audio_formats: [CODEC],
    sample_rate: SAMPLE_RATE,
    binary_frames: true,
    binary_messages: true,
    resumable: true,
    ...init,
    ...(resumeToken ? resume : {}),
  };
}

/**
 * Throws `UNSUPPORTED_FEATURE` if the mesh negotiates a format that this client does not send.
 * @param {Record<string, any>} ack
 */
export function checkNegotiated(ack) {
  const codec = ack.negotiated_codec ?? ack.negotiated_audio_format ?? CODEC;
  const rate = ack.negotiated_sample_rate ?? SAMPLE_RATE;
  if (codec !== CODEC || rate !== SAMPLE_RATE) {
    throw new LinguaError("UNSUPPORTED_FEATURE", `the mesh requires ${codec} at ${rate} Hz`);
  }
}
