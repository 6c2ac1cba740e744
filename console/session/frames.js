/**
 * Encoding of audio chunks: binary frames, or JSON with base64. Decoding of results: binary messages, whose audio follows
 * as raw bytes. docs/protocol.md is the contract.
 *
 * All numbers are little-endian.
 *   AUDIO_CHUNK  u8 type, u8 length of the id, u32 seq, u32 timestamp, u8 is_final, u8 reserved, id, audio
 *   FINAL, PING, PONG  u8 type, u8 length of the id, u32 seq, u32 timestamp, id
 *   TRANSLATION_RESULT  u8 type, u32 length of the head, head (JSON without tts_audio), audio
 */

import { LinguaError, isObject } from "./errors.js";

export const AUDIO_CHUNK = 0x01;
export const FINAL = 0x02;
export const PING = 0x10;
export const PONG = 0x11;
export const TRANSLATION_RESULT = 0x23;

const CHUNK_HEAD_BYTES = 12;
const SHORT_HEAD_BYTES = 10;
const MESSAGE_PREFIX_BYTES = 5;
const SESSION_ID_BYTES_MAX = 255;
/** String.fromCharCode takes each byte as an argument; engines bound the number of arguments. */
const BASE64_STEP_BYTES = 0x8000;

/**
 * A numbered piece of audio.
 * @typedef {object} Chunk
 * @property {number} seq
 * @property {boolean} isFinal  finalizes the utterance
 * @property {Uint8Array} audio  may be empty
 * @property {number} timestampMs  the client's wall clock
 */

/**
 * The binary frame of a chunk. A final chunk without audio is encoded as the shorter FINAL.
 * @param {string} sessionId
 * @param {Chunk} chunk
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function binaryFrame(sessionId, chunk) {
  const short = chunk.isFinal && chunk.audio.length === 0;
  const id = new TextEncoder().encode(sessionId);
  if (id.length > SESSION_ID_BYTES_MAX) throw new RangeError("a session id has at most 255 bytes");
  const headBytes = short ? SHORT_HEAD_BYTES : CHUNK_HEAD_BYTES;
  const frame = new Uint8Array(headBytes + id.length + chunk.audio.length);
  const view = new DataView(frame.buffer);
  view.setUint8(0, short ? FINAL : AUDIO_CHUNK);
  view.setUint8(1, id.length);
  view.setUint32(2, chunk.seq, true);
  view.setUint32(6, chunk.timestampMs % 2 ** 32, true);
  if (!short) view.setUint8(10, chunk.isFinal ? 1 : 0);
  frame.set(id, headBytes);
  frame.set(chunk.audio, headBytes + id.length);
  return frame;
}

/**
 * The `audio_chunk` message of a chunk.
 * @param {string} sessionId
 * @param {Chunk} chunk
 */
export function chunkMessage(sessionId, chunk) {
  return {
    type: "audio_chunk",
    session_id: sessionId,
    seq: chunk.seq,
    is_final: chunk.isFinal,
    payload: toBase64(chunk.audio),
    client_timestamp_ms: chunk.timestampMs,
  };
}

/**
 * The PONG that replies to a PING; null for any other frame.
 * @param {ArrayBuffer} frame
 * @returns {Uint8Array<ArrayBuffer> | null}
 */
export function pongFor(frame) {
  const bytes = new Uint8Array(frame);
  if (bytes.length < SHORT_HEAD_BYTES || bytes[0] !== PING) return null;
  const pong = bytes.slice();
  pong[0] = PONG;
  return pong;
}

/**
 * True for a binary message; false for any other frame.
 * @param {ArrayBuffer} frame
 */
export function isBinaryMessage(frame) {
  return frame.byteLength > 0 && new Uint8Array(frame, 0, 1)[0] === TRANSLATION_RESULT;
}

/**
 * The translation_result, with a view of the frame as its `tts_audio`. Throws `INVALID_MESSAGE` if it is malformed.
 * @param {ArrayBuffer} frame
 * @returns {Record<string, any>}
 */
export function decodeBinaryMessage(frame) {
  if (frame.byteLength < MESSAGE_PREFIX_BYTES) throw invalid("is too short");
  const headBytes = new DataView(frame).getUint32(1, true);
  if (headBytes > frame.byteLength - MESSAGE_PREFIX_BYTES) throw invalid("ends within its head");
  const head = decodeHead(new Uint8Array(frame, MESSAGE_PREFIX_BYTES, headBytes));
  if (!isObject(head) || head.type !== "translation_result") throw invalid("is no translation_result");
  if (head.tts_audio !== undefined) throw invalid("has tts_audio in its head");
  return { ...head, tts_audio: new Uint8Array(frame, MESSAGE_PREFIX_BYTES + headBytes) };
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {unknown}
 */
function decodeHead(bytes) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw invalid("has a head that is not JSON");
  }
}

/** @param {string} what */
function invalid(what) {
  return new LinguaError("INVALID_MESSAGE", `the binary message ${what}`);
}

/** @param {Uint8Array} bytes */
export function toBase64(bytes) {
  let text = "";
  for (let offset = 0; offset < bytes.length; offset += BASE64_STEP_BYTES) {
    text += String.fromCharCode(...bytes.subarray(offset, offset + BASE64_STEP_BYTES));
  }
  return btoa(text);
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
