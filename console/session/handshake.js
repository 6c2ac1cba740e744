/**
 * How a session and the mesh agree: what is said in `session_init`, and whether the answer can be lived with. Pure.
 */

import { LinguaError } from "./errors.js";

export const SAMPLE_RATE = 16_000;

const CLIENT_VERSION = "lingua-web-0.1.0";
const PLATFORM = "web";
const CODEC = "pcm16";

/**
 * session_init.
 * @param {{src?: string, tgt: string, init?: Record<string, unknown>}} options
 * @param {string} resumeToken  "" for a new session
 * @param {{lastIndex: number, lastSeq: number}} ended  up to where the session to be resumed has ended
 */
export function sessionInit({ src, tgt, init }, resumeToken, { lastIndex, lastSeq }) {
  const marks = { last_index: lastIndex, last_seq: lastSeq };
  // A pairing code is good for once; the session that is resumed has its node.
  const resume = { resume_token: resumeToken, ...marks, pairing_code: undefined };
  return {
    type: "session_init",
    client_version: CLIENT_VERSION,
    platform: PLATFORM,
    src_lang: src,
    tgt_lang: tgt,
    audio_formats: [CODEC],
    sample_rate: SAMPLE_RATE,
    binary_frames: true,
    resumable: true,
    ...init,
    ...(resumeToken ? resume : {}),
  };
}

/**
 * `UNSUPPORTED_FEATURE` if the mesh wants what is not spoken here.
 * @param {Record<string, any>} ack
 */
export function checkAgreed(ack) {
  const codec = ack.negotiated_codec ?? ack.negotiated_audio_format ?? CODEC;
  const rate = ack.negotiated_sample_rate ?? SAMPLE_RATE;
  if (codec !== CODEC || rate !== SAMPLE_RATE) {
    throw new LinguaError("UNSUPPORTED_FEATURE", `the mesh wants ${codec} at ${rate} Hz, which is not spoken here`);
  }
}
